"""Arrival times of an open loop: requests do not wait for the answers to others.

Times are a function of the seed, so that every policy gets the same requests at the same times.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import numpy as np

CLOSED = "closed"  # users who send the next request after the answer

BURST_S = 2.0  # mean length of a burst
_BURST_FACTOR = 3.0  # rate within a burst over the mean rate
_SEEDS = {"poisson": 1, "bursts": 2}


def arrival_times_s(arrivals: str, rate_per_s: float, count: int, seed: tuple[int, ...]) -> tuple[float, ...]:
    """The first ``count`` times, ascending, in seconds from the start; ``arrivals`` is a key of ``OPEN``."""
    rng = np.random.default_rng((*seed, _SEEDS[arrivals]))
    return OPEN[arrivals](rate_per_s, count, rng)


def _poisson(rate_per_s: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    return tuple(np.cumsum(rng.exponential(1.0 / rate_per_s, count)).tolist())


def _bursts(rate_per_s: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    """On-off process: Poisson at three times the rate for two seconds on average, then nothing for twice as long."""

    def times_s() -> Iterator[float]:
        began_s = 0.0
        while True:
            length_s, pause_s = rng.exponential(BURST_S), rng.exponential((_BURST_FACTOR - 1.0) * BURST_S)
            inside = rng.poisson(_BURST_FACTOR * rate_per_s * length_s)
            yield from (began_s + np.sort(rng.uniform(0.0, length_s, inside))).tolist()
            began_s += length_s + pause_s

    return tuple(islice(times_s(), count))


OPEN: Mapping[str, Callable[[float, int, np.random.Generator], tuple[float, ...]]] = {
    "poisson": _poisson,
    "bursts": _bursts,
}
