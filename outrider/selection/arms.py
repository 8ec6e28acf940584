"""The arms of a regime: the ways a verifier's generations may be served, one for all of them at a time."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve.

    Attributes:
        name: a metric's label.
        drafts: what is drafted is chosen per generation, round by round; else nothing is.
        needs_drafters: it shows what it is worth only once generations have their drafters.
    """

    name: str
    drafts: bool
    needs_drafters: bool


NONE = Arm("none", drafts=False, needs_drafters=False)
DRAFT = Arm("draft", drafts=True, needs_drafters=True)

ARMS: Mapping[str, Arm] = {arm.name: arm for arm in (NONE, DRAFT)}  # the first costs nothing to begin with
