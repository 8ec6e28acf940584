"""Find the best fixed window in the simulator by hill climbing from a closed form's choice.

Capacity and tokens per second have a single maximum over windows: short drafts waste rounds, long ones waste rows and
drafting steps. Chance puts dents into the curve, so neighbours up to two windows away are tried. One run mostly shows
whether another window serves more: it has to keep the promise with a few devices more than the present one serves.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lab.simulation.capacity import Capacity, capacity
from lab.simulation.results import SimulationResults

_NEAR = (1, -1, 2, -2)  # steps to neighbours, the likeliest improvement first


@dataclass(frozen=True, slots=True)
class PromiseSearch:
    """When a promise is kept and how finely its capacity is searched: arguments of ``capacity``."""

    violation_rate: Callable[[SimulationResults], float]
    epsilon: float
    most_devices: int
    resolution: float


class Runs:
    """Runs of one way of drafting with different numbers of devices; each is made once and kept."""

    def __init__(self, window: int, promise: PromiseSearch, simulated: Callable[[int], SimulationResults]) -> None:
        """Create runs with drafts of at most ``window`` tokens; ``simulated`` runs a number of devices."""
        self.window = window
        self._promise, self._simulated = promise, simulated
        self._runs: dict[int, SimulationResults] = {}
        self._capacity: Capacity | None = None

    def __getitem__(self, devices: int) -> SimulationResults:
        if devices not in self._runs:
            self._runs[devices] = self._simulated(devices)
        return self._runs[devices]

    def capacity(self, guess: int) -> Capacity:
        """Return the largest number of devices whose promise is kept; the first call searches it from ``guess``.

        If the guess is too large, one device is tried next: some ways of drafting cannot keep even its promise.
        """
        if self._capacity is None:
            promise, guess = self._promise, max(1, min(guess, self._promise.most_devices))
            most = promise.most_devices if self._keeps(guess) or self._keeps(1) else 1
            self._capacity = capacity(self._rate, promise.epsilon, most, guess, promise.resolution)
        return self._capacity

    def serves_more_than(self, devices: int) -> bool:
        """Return whether the capacity exceeds ``devices`` by the search's resolution.

        One run with that number decides in most cases; only if it keeps the promise, the capacity is searched.
        """
        promise = self._promise
        count = min(devices + max(1, int(promise.resolution * devices)), promise.most_devices)
        return count > devices and self._keeps(count) and self.capacity(count).devices > devices

    def _keeps(self, devices: int) -> bool:
        return self._rate(devices) <= self._promise.epsilon

    def _rate(self, devices: int) -> float:
        return self._promise.violation_rate(self[devices])


class Windows:
    """Runs of every fixed window in one cell of the map."""

    def __init__(self, longest: int, runs_of: Callable[[int], Runs]) -> None:
        """Create windows from 0 (target alone) to ``longest``; ``runs_of`` is called once for each, when needed."""
        self._drafting, self._runs_of = range(1, longest + 1), runs_of
        self._windows: dict[int, Runs] = {}

    def __getitem__(self, window: int) -> Runs:
        if window not in self._windows:
            self._windows[window] = self._runs_of(window)
        return self._windows[window]

    def serving_most(self, start: int, guess: int) -> Runs:
        """Return the window above 0 that serves most devices; of equal ones, the first found."""
        return self._climbed(start, lambda one, than: one.serves_more_than(than.capacity(guess).devices))

    def bringing_most(self, start: int, devices: int) -> Runs:
        """Return the window above 0 with the highest goodput at this number of devices."""
        return self._climbed(
            start, lambda one, than: one[devices].goodput_tokens_per_s > than[devices].goodput_tokens_per_s
        )

    def _climbed(self, start: int, better: Callable[[Runs, Runs], bool]) -> Runs:
        here: int | None = start
        while here is not None:
            top, near = here, (here + away for away in _NEAR if here + away in self._drafting)
            here = next((window for window in near if better(self[window], self[top])), None)
        return self[top]
