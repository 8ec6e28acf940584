"""Stop rules of drafter groups by name, and the rule that follows from each order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from outrider.contracts.errors import ParameterError
from outrider.contracts.price import DraftPrice
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.recalibration import Recalibration
from outrider.drafting.stops import NeverStop, SendAndStop, StopBefore, StopRule

_FREE = DraftPrice()


@dataclass(frozen=True, slots=True)
class StopKind:
    """A rule there is.

    Attributes:
        make: of a predictor, the probability below which a token is flagged, and an order's price.
        stops: whether a draft may be shorter than ordered.
        by_price: whether it goes by the price in an order.
    """

    make: Callable[[AcceptancePredictor, float, DraftPrice], StopRule]
    stops: bool = True
    by_price: bool = False


STOP_KINDS: Mapping[str, StopKind] = {
    "never": StopKind(lambda *_: NeverStop(), stops=False),
    "stop_before": StopKind(lambda predictor, least, _: StopBefore(predictor, least)),
    "send_and_stop": StopKind(lambda predictor, least, _: SendAndStop(predictor, least)),
    "while_it_pays": StopKind(lambda predictor, _, price: CostAwareStop(predictor, price), by_price=True),
}


@dataclass(frozen=True, slots=True)
class GroupStopping:
    """How a group's devices stop, as those know it who order drafts of them.

    Attributes:
        rule: name of the rule, one of ``STOP_KINDS``.
        drafting_weight: what a second of drafting counts for in an order's price, 1 for the response's time alone.
    """

    rule: str = "never"
    drafting_weight: float = 1.0

    @property
    def kind(self) -> StopKind:
        return STOP_KINDS[self.rule]


class Stops(Protocol):
    """What an engine asks for the rule of a chain."""

    def recalibration(self) -> Recalibration:
        """A new one, of the predictors there are: an engine learns for itself."""
        ...

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:
        """Of a chain's first position.

        Args:
            predictor: that it may ask.
            price: of the order; None: tokens cost nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class StopSetting:
    """A rule as it is configured.

    Attributes:
        kind: name of the rule, one of ``STOP_KINDS``.
        least_acceptance: probability in [0, 1] below which a token is flagged, by rules that flag.
        predictors: of acceptance, by what verifies a chain; the model's own confidence where there is none.

    Raises:
        ParameterError: no rule's name, or a threshold that is no probability.
    """

    kind: str = "never"
    least_acceptance: float = 0.5
    predictors: Mapping[AcceptanceRule, AcceptancePredictor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what there is not."""
        if self.kind not in STOP_KINDS:
            raise ParameterError("kind", f"one of {', '.join(STOP_KINDS)}", self.kind)
        if not 0.0 <= self.least_acceptance <= 1.0:
            raise ParameterError("least_acceptance", "a probability in [0, 1]", self.least_acceptance)

    @property
    def stops(self) -> bool:
        """Whether a draft may be shorter than ordered."""
        return STOP_KINDS[self.kind].stops

    def recalibration(self) -> Recalibration:
        return Recalibration(self.predictors)

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:
        return STOP_KINDS[self.kind].make(predictor, self.least_acceptance, price or _FREE)
