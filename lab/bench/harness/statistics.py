"""Means with 95 % intervals over responses (positions within one are correlated), and medians of arms over repeats."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

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


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over repeats, with minimum and maximum."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """``41.2 [40.8-44.0]``."""
        return self.shown(1)

    def shown(self, digits: int) -> str:
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}-{self.high:.{digits}f}]"


def spread_of(values: Collection[float]) -> Spread:
    """Of at least one value."""
    return Spread(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Sample:
    clients: int
    arm: str
    values: Mapping[str, float]  # by name; values that could not be measured are missing
    failure: str = ""  # the failure, if any
    turn: int = 0  # of the round in which all arms are measured once


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm at one number of clients, over repeats; ``failure`` is the first one."""

    clients: int
    arm: str
    values: Mapping[str, Spread]
    failure: str


def rotated(items: Sequence[_T], repeat: int) -> list[_T]:
    """Rotate the order in every repeat, so that drifts do not always affect the same item."""
    first = repeat % len(items) if items else 0
    return [*items[first:], *items[:first]]


def figures(samples: Iterable[Sample]) -> list[ArmFigures]:
    """By clients and arm, in order of first appearance."""
    groups: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.clients, sample.arm), []).append(sample)
    found = []
    for (clients, arm), group in groups.items():
        values: dict[str, list[float]] = {}
        for name, value in (pair for one in group for pair in one.values.items()):
            values.setdefault(name, []).append(value)
        spreads = {name: spread_of(some) for name, some in values.items()}
        found.append(ArmFigures(clients, arm, spreads, next((one.failure for one in group if one.failure), "")))
    return found
