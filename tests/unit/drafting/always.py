"""Stop rules for all chains alike."""

from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.drafting.acceptance import AcceptancePredictor
from outrider.drafting.recalibration import Recalibration
from outrider.drafting.stops import NeverStop, StopRule


@dataclass(frozen=True)
class Always:
    """``Stops`` that go by no price, and by nothing learned."""

    stop_rule: StopRule = field(default_factory=NeverStop)

    def recalibration(self) -> Recalibration:
        return Recalibration({})

    def rule(self, *_: object) -> StopRule:
        return self.stop_rule


@dataclass(frozen=True)
class Learning:
    """``Stops`` that go by what is learned, and by no price."""

    make: Callable[[AcceptancePredictor], StopRule]
    begun: Callable[[], Recalibration]

    def recalibration(self) -> Recalibration:
        return self.begun()

    def rule(self, predictor: AcceptancePredictor, *_: object) -> StopRule:
        return self.make(predictor)
