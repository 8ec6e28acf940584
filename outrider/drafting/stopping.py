"""Stop rules by their configured names, and the rule of a chain from setting, predictor and price."""

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
    """An available stop rule.

    Attributes:
        make: from a predictor, the probability below which a token is flagged, and an order's price.
    """

    make: Callable[[AcceptancePredictor, float, DraftPrice], StopRule]
    stops: bool = True  # whether a draft may be shorter than ordered
    by_price: bool = False  # whether it uses the price in an order


STOP_KINDS: Mapping[str, StopKind] = {
    "never": StopKind(lambda *_: NeverStop(), stops=False),
    "stop_before": StopKind(lambda predictor, least, _: StopBefore(predictor, least)),
    "send_and_stop": StopKind(lambda predictor, least, _: SendAndStop(predictor, least)),
    "while_it_pays": StopKind(lambda predictor, _, price: CostAwareStop(predictor, price), by_price=True),
}


class Stops(Protocol):
    """Source of stop rules for a drafter's engine."""

    def recalibration(self) -> Recalibration:
        """Return a new recalibration of the configured predictors; each engine learns its own."""
        ...

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:
        """Return the rule for a chain's first position; ``price`` is the order's, None: tokens cost nothing."""
        ...


@dataclass(frozen=True, slots=True)
class StopSetting:
    """A stop rule as configured.

    Attributes:
        predictors: by rule of acceptance; without one, the model's own confidence predicts.

    Raises:
        ParameterError: an unknown rule, or a threshold outside [0, 1].
    """

    kind: str = "never"  # name of the rule, one of ``STOP_KINDS``
    least_acceptance: float = 0.5  # probability in [0, 1] below which a token is flagged, for rules that flag
    predictors: Mapping[AcceptanceRule, AcceptancePredictor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in STOP_KINDS:
            raise ParameterError("kind", f"one of {', '.join(STOP_KINDS)}", self.kind)
        if not 0.0 <= self.least_acceptance <= 1.0:
            raise ParameterError("least_acceptance", "a probability in [0, 1]", self.least_acceptance)

    @property
    def stops(self) -> bool:
        return STOP_KINDS[self.kind].stops

    def recalibration(self) -> Recalibration:
        return Recalibration(self.predictors)

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:
        return STOP_KINDS[self.kind].make(predictor, self.least_acceptance, price or _FREE)
