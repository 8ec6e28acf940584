"""Stop rules by their configured names, and the rule of a chain from setting, predictor and price."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from outrider.contracts.price import DraftPrice
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.cost_aware import CostAwareStop
from outrider.drafting.recalibration import Recalibration
from outrider.drafting.stops import NeverStop, SendAndStop, StopBefore, StopRule

LEAST_ACCEPTANCE = 0.5  # probability below which the rules that flag tokens flag one
_FREE = DraftPrice()


@dataclass(frozen=True, slots=True)
class StopKind:
    make: Callable[[AcceptancePredictor, DraftPrice], StopRule]  # from a predictor and an order's price
    stops: bool = True  # whether a draft may be shorter than ordered
    by_price: bool = False  # whether it uses the price in an order


STOP_KINDS: Mapping[str, StopKind] = {
    "never": StopKind(lambda *_: NeverStop(), stops=False),
    "stop_before": StopKind(lambda predictor, _: StopBefore(predictor, LEAST_ACCEPTANCE)),
    "send_and_stop": StopKind(lambda predictor, _: SendAndStop(predictor, LEAST_ACCEPTANCE)),
    "while_it_pays": StopKind(CostAwareStop, by_price=True),
}


class Stops(Protocol):
    """Source of stop rules for a drafter's engine."""

    def recalibration(self) -> Recalibration:
        """Return a new recalibration of the configured predictors; each engine learns its own."""

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:
        """Return the rule for a chain's first position; ``price`` is the order's, None: tokens cost nothing."""


@dataclass(frozen=True, slots=True)
class StopSetting:
    kind: str = "never"  # name of the rule, one of ``STOP_KINDS``
    # by rule of acceptance; without one, the model's own confidence predicts
    predictors: Mapping[AcceptanceRule, AcceptancePredictor] = field(default_factory=dict)

    @property
    def stops(self) -> bool:
        return STOP_KINDS[self.kind].stops

    def recalibration(self) -> Recalibration:
        return Recalibration(self.predictors)

    def rule(self, predictor: AcceptancePredictor, price: DraftPrice | None) -> StopRule:
        return STOP_KINDS[self.kind].make(predictor, price or _FREE)
