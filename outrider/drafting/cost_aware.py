"""Stop rule ``while_it_pays``: draft on while a token's expected gain exceeds the price sent with the order.

A token at depth k brings its survival, the probability that it is accepted with all before it. What it costs is another
matter than how sure the model is: a row of the verifier's step, and of the device a pass for the row behind it. A stop
on predicted rejection knows neither. It ends a draft on a token that is rejected more often than not where rows are
nearly free, and goes on with a good one whose row nobody can pay.

Two prices, as there are two things to decide at a position. Its row was computed already, so to send its token costs
the verifier's row alone; to go on behind it costs the device's next step as well. Survival only falls along a chain, so
what is not worth it now is worth it no more later: looking one token ahead is enough.
"""

from dataclasses import dataclass
from typing import ClassVar

from outrider.contracts.price import DraftPrice
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import StopDecision


@dataclass(frozen=True, slots=True)
class CostAwareStop:
    """Sends a token if its row pays, and drafts on behind it if another one would.

    Attributes:
        predictor: of acceptance.
        price: at the load as the order was made.
        survival: of all that was drafted so far.
    """

    predictor: AcceptancePredictor
    price: DraftPrice
    survival: float = 1.0
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        survival = self.survival * self.predictor.probability(features)
        if survival <= self.price.send_above:
            return StopDecision.STOP
        return StopDecision.DRAW if survival > self.price.go_on_above else StopDecision.DRAW_LAST

    def behind(self, features: DraftFeatures) -> "CostAwareStop":
        return CostAwareStop(self.predictor, self.price, self.survival * self.predictor.probability(features))
