"""Define the settings of admission."""

from dataclasses import dataclass

from outrider.contracts.slo import SloClass


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    weighs: bool = True  # whether load and KV are checked; False lets in every response that finds a place
    max_load: float = 0.8  # verifier seconds per second that promises may need, if passes had no constant cost
    # share of places, KV and time that promises leave to best effort while any is there
    best_effort_floor: float = 0.05
    max_active: int = 32  # responses active at once; ``max_waiting``: responses that wait to be begun
    max_waiting: int = 128
    max_wait_s: float = 10.0  # longest wait for a promise, in each class that the response allows
    best_effort_max_wait_s: float = 300.0  # longest wait to be begun without a promise

    def wait_s(self, slo: SloClass) -> float:
        """Return how long a response may wait to be begun in a class."""
        return self.max_wait_s if slo.tokens_per_s else self.best_effort_max_wait_s

    @property
    def floor_places(self) -> int:
        """Places left to best effort: at least one, unless the floor is 0 or there is only one place."""
        if self.best_effort_floor == 0.0 or self.max_active == 1:
            return 0
        return min(max(1, round(self.best_effort_floor * self.max_active)), self.max_active - 1)
