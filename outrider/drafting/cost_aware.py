"""Stop rule ``while_it_pays``: draft on while a token's survival exceeds the price that came with the order.

There are two prices for the two decisions at a position. The device has already computed the position's row, so sending
its token costs the verifier's row only. To draft on behind it costs the device's next step as well. Survival only falls
along a chain, so a token that does not pay is followed by none that does (docs/design/0031).
"""

from dataclasses import dataclass
from typing import ClassVar

from outrider.contracts.price import DraftPrice
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import StopDecision


@dataclass(frozen=True, slots=True)
class CostAwareStop:
    """Sends a token if its row pays, and drafts on behind it if another token would pay."""

    predictor: AcceptancePredictor  # of acceptance
    price: DraftPrice  # at the load when the order was made
    survival: float = 1.0  # of the last token drafted; 1 before the first
    asks: ClassVar[bool] = True

    def step(self, features: DraftFeatures) -> StopDecision:
        survival = self.survival * self.predictor.probability(features)
        if survival <= self.price.send_above:
            return StopDecision.STOP
        return StopDecision.DRAW if survival > self.price.go_on_above else StopDecision.DRAW_LAST

    def after(self, features: DraftFeatures) -> "CostAwareStop":
        return CostAwareStop(self.predictor, self.price, self.survival * self.predictor.probability(features))
