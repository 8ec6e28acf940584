"""Search a system's capacity, the most devices served at their promised speed (WISP eq. 20), by bisection.

    Cap = max { N : every count tried up to N has a violation rate <= eps }

A rate measured over a finite run is nearly, but not strictly, monotone in N, so bisection alone may stop at a dent.
Therefore a few larger counts are tried after it. If one still keeps the promise, the search goes on from there.
"""

from collections.abc import Callable
from dataclasses import dataclass

_FIRST_STEP = 1.25
_BEYOND = (1.04, 1.1)  # larger counts to try, as multiples of the one found


@dataclass(frozen=True, slots=True)
class Capacity:
    devices: int  # the largest number that keeps the promise; 0 if not even one device does
    tried: tuple[tuple[int, float], ...]  # every number tried with its violation rate, ascending
    bounded: bool = False  # the promise still held at the largest number allowed, so there may be more


def capacity(
    violation_rate: Callable[[int], float],
    eps: float,
    most_devices: int,
    first_guess: int = 16,
    resolution: float = 0.0,
    *,
    first_step: float = _FIRST_STEP,
    look_beyond: bool = True,
) -> Capacity:
    """Search the largest number of devices whose promise is kept.

    Args:
        violation_rate: of a run with a number of devices, >= 1; deterministic.
        eps: the largest rate that keeps the promise.
        most_devices: not to be exceeded.
        first_guess: number to begin with.
        resolution: stop when the number is known to within this share of it; 0 finds it exactly.
        first_step: factor from the first guess to the next; small where the guess is near, as another seed's capacity.
        look_beyond: whether to try counts above the one bisection found; costs up to two runs each time.
    """
    search = _Search(violation_rate, eps, most_devices)
    search.bracket(min(max(first_guess, 1), most_devices), first_step)
    while True:
        search.bisect(resolution)
        if not look_beyond or not search.look_beyond():
            return Capacity(search.held, tuple(sorted(search.tried.items())), bounded=search.held >= most_devices)


class _Search:
    """``held`` keeps the promise (0: none tried does), ``broken`` does not (most + 1: none tried)."""

    def __init__(self, violation_rate: Callable[[int], float], eps: float, most_devices: int) -> None:
        self.tried: dict[int, float] = {}
        self.held, self.broken = 0, most_devices + 1
        self._violation_rate, self._eps, self._most = violation_rate, eps, most_devices

    def bracket(self, guess: int, first_step: float) -> None:
        """Step from a guess, in growing steps, until a number that holds and one that does not are known."""
        factor = first_step
        while self._try(guess):
            if self.held >= self._most:
                return
            guess = min(max(guess + 1, int(guess * factor)), self._most)
            factor **= 1.5
        factor = first_step
        while self.held == 0 and self.broken > 1:
            self._try(max(1, min(self.broken - 1, int(self.broken / factor))))
            factor **= 1.5

    def bisect(self, resolution: float) -> None:
        while self.broken - self.held > max(1, int(resolution * self.held)):
            self._try((self.held + self.broken) // 2)

    def look_beyond(self) -> bool:
        """Try somewhat larger numbers; return whether one holds, with ``held`` and ``broken`` set anew."""
        if self.held == 0:
            return False
        found = self.held
        for times in _BEYOND:
            count = min(max(found + 2, round(found * times)), self._most)
            if count > self.held and self._rate(count) <= self._eps:
                self.held = count
        larger = [count for count, rate in self.tried.items() if count > self.held and rate > self._eps]
        self.broken = min(larger, default=self._most + 1)
        return self.held > found

    def _try(self, devices: int) -> bool:
        if self._rate(devices) <= self._eps:
            self.held = max(self.held, devices)
            return True
        self.broken = min(self.broken, devices)
        return False

    def _rate(self, devices: int) -> float:
        if devices not in self.tried:
            self.tried[devices] = self._violation_rate(devices)
        return self.tried[devices]
