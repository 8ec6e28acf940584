"""One stop rule for all chains."""

from dataclasses import dataclass, field

from outrider.drafting.stops import NeverStop, StopRule


@dataclass(frozen=True)
class Always:
    """``Stops`` that go by no price."""

    stop_rule: StopRule = field(default_factory=NeverStop)

    def rule(self, *_: object) -> StopRule:
        return self.stop_rule
