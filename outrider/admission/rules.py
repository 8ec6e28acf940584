"""What an operator sets of admission."""

from dataclasses import dataclass

from outrider.contracts.slo import SloClass


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Of one verifier.

    Attributes:
        weighs: whether load and KV are looked at; False lets in whatever has a place.
        max_load: verifier seconds per second that promises may need, where passes cost nothing beside their blocks.
        best_effort_floor: share of places, KV and time that promises leave to best effort where it wants them.
        max_active: responses made at once; ``max_waiting``: that wait to be begun.
        max_wait_s: that a response waits for a promise, in each class it allows.
        best_effort_max_wait_s: that it waits to be begun without one.
    """

    weighs: bool = True
    max_load: float = 0.8
    best_effort_floor: float = 0.05
    max_active: int = 32
    max_waiting: int = 128
    max_wait_s: float = 10.0
    best_effort_max_wait_s: float = 300.0

    def wait_s(self, slo: SloClass) -> float:
        """How long a response may wait to be begun in a class."""
        return self.max_wait_s if slo.tokens_per_s else self.best_effort_max_wait_s

    @property
    def floor_places(self) -> int:
        """Places that promises leave to best effort; one at least, unless the floor is 0 or there is but one place."""
        if self.best_effort_floor == 0.0 or self.max_active == 1:
            return 0
        return min(max(1, round(self.best_effort_floor * self.max_active)), self.max_active - 1)
