"""Means with 95 % intervals over responses, as positions and rounds within a response are correlated."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """``0.412 [0.380, 0.441]``."""
        return self.shown()

    def shown(self, scale: float = 1.0, digits: int = 3) -> str:
        mean, low, high = (f"{scale * value:.{digits}f}" for value in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


def estimate(responses: Sequence[npt.NDArray[np.float64]]) -> Estimate:
    """Mean over all positions; whole responses are redrawn."""
    return ratio([float(response.sum()) for response in responses], [len(response) for response in responses])


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> Estimate:
    """Ratio of sums, with a percentile bootstrap that redraws pairs."""
    top, bottom = np.array(tops, dtype=np.float64), np.array(bottoms, dtype=np.float64)
    if not bottom.sum():
        raise ValueError("needs a positive sum to divide by, found 0")
    redrawn = picks(len(top))
    below = bottom[redrawn].sum(1)
    rates = top[redrawn].sum(1)[below > 0] / below[below > 0]
    low, high = np.quantile(rates, (0.025, 0.975))
    return Estimate(float(top.sum() / bottom.sum()), float(low), float(high))


def quotient(over: tuple[Sequence[float], Sequence[float]], under: tuple[Sequence[float], Sequence[float]]) -> Estimate:
    """Quotient of two ratios of sums; each side's pairs (tops and bottoms) are redrawn independently."""
    (rate, rates), (other, others) = (_redrawn_rates(*pairs, seed) for seed, pairs in enumerate((over, under)))
    low, high = np.quantile(rates / others, (0.025, 0.975))
    return Estimate(rate / other, float(low), float(high))


def _redrawn_rates(tops: Sequence[float], bottoms: Sequence[float], seed: int) -> tuple[float, npt.NDArray[np.float64]]:
    top, bottom = np.array(tops, dtype=np.float64), np.array(bottoms, dtype=np.float64)
    redrawn = picks(len(top), seed)
    return float(top.sum() / bottom.sum()), top[redrawn].sum(1) / bottom[redrawn].sum(1)


def picks(count: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """``[resamples, count]``: indices drawn in each resample, always the same."""
    return np.random.default_rng(seed).integers(count, size=(_RESAMPLES, count))
