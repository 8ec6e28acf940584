"""Stop rules: whether a device drafts on, decided before the token is drawn.

This order is what keeps ratio rules exact: they are exact over all tokens that can be drawn at a position. Whether
anything is drawn there may depend on the prefix, the draft tokens before it and the row. A rule that drops a token for
what it is makes the target's own choice stand in for just those tokens, and the output is no longer the target's.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self

from outrider.contracts.errors import ParameterError
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import DraftFeatures


class StopDecision(StrEnum):
    """What is done at a position."""

    DRAW = "draw"  # a token is drawn, and the next position looked at
    DRAW_LAST = "draw_last"  # a token is drawn, and ends the draft
    STOP = "stop"  # the draft ends before it; nothing is drawn


class StopRule(Protocol):
    """Pure: the same features, the same step.

    Attributes:
        asks: whether it looks at features at all. Of a device whose rule does not, none are made ready.
    """

    asks: ClassVar[bool]

    def step(self, features: DraftFeatures) -> StopDecision:
        """What to do at a position whose token is to be drawn from a row with these features."""
        ...

    def behind(self, features: DraftFeatures) -> "StopRule":
        """The rule of the next position, if a token is drawn from such a row; of a new draft it is the first one's."""
        ...


@dataclass(frozen=True, slots=True)
class NeverStop:
    """Drafts are as long as they were ordered."""

    asks: ClassVar[bool] = False

    def step(self, features: DraftFeatures) -> StopDecision:  # noqa: ARG002 (as others)
        return StopDecision.DRAW

    def behind(self, features: DraftFeatures) -> "NeverStop":  # noqa: ARG002 (as others)
        return self


@dataclass(frozen=True, slots=True)
class _Threshold:
    """Flags a token that is accepted too seldom.

    Attributes:
        predictor: of acceptance.
        least_acceptance: probability in [0, 1] below which a token is flagged; 0 flags none.

    Raises:
        ParameterError: a threshold that is no probability.
    """

    predictor: AcceptancePredictor
    least_acceptance: float

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.0 <= self.least_acceptance <= 1.0:
            raise ParameterError("least_acceptance", "a probability in [0, 1]", self.least_acceptance)

    def flags(self, features: DraftFeatures) -> bool:
        """Whether a token is not worth drafting."""
        return self.predictor.probability(features) < self.least_acceptance

    def behind(self, features: DraftFeatures) -> Self:  # noqa: ARG002 (as others)
        """The same: each token is taken for itself."""
        return self


@dataclass(frozen=True, slots=True)
class StopBefore(_Threshold):
    """The draft ends before the first flagged token (WISP eq. 25); it may be empty."""

    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        return StopDecision.STOP if self.flags(features) else StopDecision.DRAW


@dataclass(frozen=True, slots=True)
class SendAndStop(_Threshold):
    """The draft ends with the first flagged token: it costs nothing on the device to send, and may be right."""

    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        return StopDecision.DRAW_LAST if self.flags(features) else StopDecision.DRAW
