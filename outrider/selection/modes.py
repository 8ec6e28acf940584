"""The speculation modes: how a verifier's generations draft, one mode at a time for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeculationMode:
    """One way to serve.

    Attributes:
        name: a metric's label.
        drafts: what devices draft is chosen per generation, round by round; else they draft nothing.
        uses_lookup: what a text repeats is drafted from the text itself, where it pays.
        unknown_loss: share of the reward that a try of it may cost where nothing is known of it.
    """

    name: str
    drafts: bool
    uses_lookup: bool = False
    unknown_loss: float = 0.4

    @property
    def needs_drafters(self) -> bool:
        """Whether it shows what it is worth only once generations have their drafters."""
        return self.drafts


NONE = SpeculationMode("none", drafts=False)
LOOKUP = SpeculationMode(
    "lookup", drafts=False, uses_lookup=True, unknown_loss=0.1
)  # no device to wait for, and each draft is priced
DRAFT = SpeculationMode("draft", drafts=True)
LOOKUP_DRAFT = SpeculationMode("lookup_draft", drafts=True, uses_lookup=True)

MODES: Mapping[
    str, SpeculationMode
] = {  # the first that there is something for is begun with: neither it nor ``none`` costs much
    mode.name: mode for mode in (LOOKUP, NONE, DRAFT, LOOKUP_DRAFT)
}

# What is looked up is priced draft by draft, and so is no worse than without: fewer modes, fewer wrong turns.
DEFAULT_MODES = (LOOKUP.name, LOOKUP_DRAFT.name)


def within(mode: SpeculationMode, *, drafts: bool, uses_lookup: bool) -> SpeculationMode:
    """What is left of a mode where there are no devices to draft, or nothing is looked up."""
    left = mode.drafts and drafts, mode.uses_lookup and uses_lookup
    return next(one for one in MODES.values() if (one.drafts, one.uses_lookup) == left)
