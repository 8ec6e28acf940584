"""Stop rules: decide whether a device drafts on before the token is drawn, from the row it would be drawn from.

This order keeps ratio rules exact. They are exact over all tokens that can be drawn at a position. Whether a token is
drawn there may depend on the prefix, the draft tokens before it and the row. A rule that drops a token after seeing it
replaces just those tokens by draws from the target, which biases the output.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self

from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import DraftFeatures


class StopDecision(StrEnum):
    DRAW = "draw"  # draw a token and go on to the next position
    DRAW_LAST = "draw_last"  # draw a token and end the draft with it
    STOP = "stop"  # end the draft before this position, without a draw


class StopRule(Protocol):
    """Immutable and deterministic: equal features give equal decisions."""

    asks: ClassVar[bool]  # whether it uses features at all; if not, the device computes none for it

    def step(self, features: DraftFeatures) -> StopDecision:
        """Return the decision at a position whose token would be drawn from a row with these features."""

    def after(self, features: DraftFeatures) -> "StopRule":
        """Return the rule for the next position, after a token is drawn from a row with these features."""


@dataclass(frozen=True, slots=True)
class NeverStop:
    asks: ClassVar[bool] = False

    def step(self, features: DraftFeatures) -> StopDecision:  # noqa: ARG002 (as others)
        return StopDecision.DRAW

    def after(self, features: DraftFeatures) -> "NeverStop":  # noqa: ARG002 (as others)
        return self


@dataclass(frozen=True, slots=True)
class _Threshold:
    """Flags tokens whose predicted acceptance is below a threshold."""

    predictor: AcceptancePredictor  # of acceptance
    least_acceptance: float  # probability in [0, 1] below which a token is flagged; 0 flags none

    def flags(self, features: DraftFeatures) -> bool:
        return self.predictor.probability(features) < self.least_acceptance

    def after(self, features: DraftFeatures) -> Self:  # noqa: ARG002 (as others)
        """Return the same rule: each token is judged by itself."""
        return self


@dataclass(frozen=True, slots=True)
class StopBefore(_Threshold):
    """End the draft before the first flagged token (WISP eq. 25); it may be empty."""

    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        return StopDecision.STOP if self.flags(features) else StopDecision.DRAW


@dataclass(frozen=True, slots=True)
class SendAndStop(_Threshold):
    """End the draft with the first flagged token: sending it costs the device no further pass, and it may be right."""

    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        return StopDecision.DRAW_LAST if self.flags(features) else StopDecision.DRAW
