"""When responses are asked for in an open loop: whoever asks does not wait for anybody else's answer.

Times are a function of the seed, so that every policy is asked for the same at the same moments.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import numpy as np

CLOSED = "closed"  # users who ask again once they have been answered

BURST_S = 2.0  # mean length of a burst
_BURST_FACTOR = 3.0  # in a burst responses are asked for so many times as often as on average
_SEEDS = {"poisson": 1, "bursts": 2}


def arrival_times_s(arrivals: str, rate_per_s: float, count: int, seed: tuple[int, ...]) -> tuple[float, ...]:
    """The first ``count`` times, ascending, in seconds from the begin.

    Args:
        arrivals: a key of ``OPEN``.
        rate_per_s: responses asked for per second, on the average over long times.
        count: how many.
        seed: of all chance.
    """
    rng = np.random.default_rng((*seed, _SEEDS[arrivals]))
    return OPEN[arrivals](rate_per_s, count, rng)


def _poisson(rate_per_s: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Independent of one another."""
    return tuple(np.cumsum(rng.exponential(1.0 / rate_per_s, count)).tolist())


def _bursts(rate_per_s: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    """On and off: Poisson at three times the rate for two seconds on average, then nothing for twice that."""

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
