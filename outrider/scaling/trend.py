"""Extrapolate a demand from its past. Pure."""

from collections.abc import Sequence
from math import sqrt

Sample = tuple[float, float]  # time (seconds), demand

_LEAST_SAMPLES = 4
_LEVEL_SHARE = 0.25  # of the window, whose mean is the present demand


def ahead(samples: Sequence[Sample], now_s: float, window_s: float, ahead_s: float) -> float:
    """Return the demand expected ``ahead_s`` from now: the mean of the window's last quarter plus growth.

    Growth is the slope of the least-squares line through the window less its standard error, so that chance is no
    trend; it is never negative. A single peak within the quarter is averaged. ``samples``, at least one, are the oldest
    first, and none is newer than ``now_s``.
    """
    within = [one for one in samples if now_s - one[0] <= window_s] or [samples[-1]]
    newest = [one for one in within if now_s - one[0] <= _LEVEL_SHARE * window_s] or [within[-1]]
    at_s = sum(when for when, _ in newest) / len(newest)
    level = sum(value for _, value in newest) / len(newest)
    return level + growth_per_s(within) * (now_s + ahead_s - at_s)


def growth_per_s(samples: Sequence[Sample]) -> float:
    """Return the slope less its standard error, at least 0."""
    count = len(samples)
    if count < _LEAST_SAMPLES:
        return 0.0
    mean_s, mean = (sum(column) / count for column in zip(*samples, strict=True))
    spread: float = sum((when - mean_s) ** 2 for when, _ in samples)
    if spread == 0.0:
        return 0.0
    slope = sum((when - mean_s) * (value - mean) for when, value in samples) / spread
    left: float = sum((value - mean - slope * (when - mean_s)) ** 2 for when, value in samples)
    error = sqrt(left / (count - 2) / spread)
    return max(0.0, float(slope) - error)
