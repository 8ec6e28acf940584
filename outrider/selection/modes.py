"""The speculation modes: whether devices draft and whether prompt lookup is used, for all generations of a verifier."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeculationMode:
    name: str  # also a metric's label
    drafts: bool  # devices draft by the policy's choice in each round; else they draft nothing
    uses_lookup: bool = False  # prompt lookup makes drafts where they pay
    unknown_loss: float = 0.4  # share of the reward that a trial is expected to lose while the mode is unknown

    @property
    def needs_drafters(self) -> bool:
        """Whether its reward can be measured only after generations have their drafters."""
        return self.drafts


NONE = SpeculationMode("none", drafts=False)
LOOKUP = SpeculationMode(
    "lookup", drafts=False, uses_lookup=True, unknown_loss=0.1
)  # no device to wait for, and each draft is priced
DRAFT = SpeculationMode("draft", drafts=True)
LOOKUP_DRAFT = SpeculationMode("lookup_draft", drafts=True, uses_lookup=True)

MODES: Mapping[
    str, SpeculationMode
] = {  # the first that is possible is begun with: neither prompt lookup nor ``none`` costs much
    mode.name: mode for mode in (LOOKUP, NONE, DRAFT, LOOKUP_DRAFT)
}

# Each n-gram draft is priced, so modes with prompt lookup are no worse than those without, and fewer need trying.
DEFAULT_MODES = (LOOKUP.name, LOOKUP_DRAFT.name)


def within(mode: SpeculationMode, *, drafts: bool, uses_lookup: bool) -> SpeculationMode:
    """Return the mode that remains where devices cannot draft, or prompt lookup is off."""
    left = mode.drafts and drafts, mode.uses_lookup and uses_lookup
    return next(one for one in MODES.values() if (one.drafts, one.uses_lookup) == left)
