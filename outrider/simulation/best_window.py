"""The fixed window that is best in the simulator: a walk from a closed form's choice to where no window near is better.

Over windows, capacity and tokens per second have one hill: short drafts waste rounds, long ones rows and steps. Chance
puts dents into it, so the walk looks two windows far. Whether another window serves more devices takes one run in most
cases: with a few more than the present one serves, it would have to keep the promise.
"""

from collections.abc import Callable
from dataclasses import dataclass

from outrider.simulation.capacity import Capacity, capacity
from outrider.simulation.results import SimulationResults

_NEAR = (1, -1, 2, -2)  # windows away, the likeliest first


@dataclass(frozen=True, slots=True)
class PromiseSearch:
    """When it is kept, and how closely a capacity is searched; as ``capacity`` takes it."""

    violation_rate: Callable[[SimulationResults], float]
    epsilon: float
    most_devices: int
    resolution: float


class Runs:
    """Of one way of drafting with different numbers of devices, each made once."""

    def __init__(self, window: int, promise: PromiseSearch, simulated: Callable[[int], SimulationResults]) -> None:
        """``window`` is drafted at most; ``simulated`` runs with a number of devices."""
        self.window = window
        self._promise, self._simulated = promise, simulated
        self._runs: dict[int, SimulationResults] = {}
        self._capacity: Capacity | None = None

    def __getitem__(self, devices: int) -> SimulationResults:
        if devices not in self._runs:
            self._runs[devices] = self._simulated(devices)
        return self._runs[devices]

    def capacity(self, guess: int) -> Capacity:
        """Most devices whose promise is kept; searched from a guess when it is first asked for.

        Where the guess is too many, one device is tried next: some ways of drafting keep it to nobody.
        """
        if self._capacity is None:
            promise, guess = self._promise, max(1, min(guess, self._promise.most_devices))
            most = promise.most_devices if self._keeps(guess) or self._keeps(1) else 1
            self._capacity = capacity(self._rate, promise.epsilon, most, guess, promise.resolution)
        return self._capacity

    def serves_more_than(self, devices: int) -> bool:
        """Whether the next larger number that is told from this one is served, and so many are indeed."""
        promise = self._promise
        count = min(devices + max(1, int(promise.resolution * devices)), promise.most_devices)
        return count > devices and self._keeps(count) and self.capacity(count).devices > devices

    def _keeps(self, devices: int) -> bool:
        return self._rate(devices) <= self._promise.epsilon

    def _rate(self, devices: int) -> float:
        return self._promise.violation_rate(self[devices])


class Windows:
    """Runs of every fixed window of a place."""

    def __init__(self, longest: int, runs_of: Callable[[int], Runs]) -> None:
        """``runs_of`` a window from 0, the target alone, up to the ``longest``; called once for each."""
        self._drafting, self._runs_of = range(1, longest + 1), runs_of
        self._windows: dict[int, Runs] = {}

    def __getitem__(self, window: int) -> Runs:
        if window not in self._windows:
            self._windows[window] = self._runs_of(window)
        return self._windows[window]

    def serving_most(self, start: int, guess: int) -> Runs:
        """The window above 0 that serves most devices; of equals the one found first.

        Args:
            start: the window to begin with.
            guess: devices that it may serve.
        """
        return self._climbed(start, lambda one, than: one.serves_more_than(than.capacity(guess).devices))

    def bringing_most(self, start: int, devices: int) -> Runs:
        """Likewise the one with most tokens per second, all with so many devices."""
        return self._climbed(
            start, lambda one, than: one[devices].goodput_tokens_per_s > than[devices].goodput_tokens_per_s
        )

    def _climbed(self, start: int, better: Callable[[Runs, Runs], bool]) -> Runs:
        here: int | None = start
        while here is not None:
            top, near = here, (here + away for away in _NEAR if here + away in self._drafting)
            here = next((window for window in near if better(self[window], self[top])), None)
        return self[top]
