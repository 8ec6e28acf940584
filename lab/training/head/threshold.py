"""Choose a head's threshold: the largest shown to cost no more than a stated drop, tested in sequence from 0.

A threshold passes if the upper end of a paired, one-sided bootstrap interval of the mean drop, strict minus semantic
score of the same tasks, is below the limit. Thresholds are tested in a fixed order up to the first failure, each at the
full confidence, so the chance of choosing one whose true drop exceeds the limit is at most one minus that, as far as
the interval is right. The interval suits many tasks with drops of one order. Where drops are few and large, as with
all-or-nothing scores, a hundred tasks may contain none: at a true drop of 0.01 a threshold then passes up to one time
in four (129 tasks, one in a hundred of which falls by 1).
"""

from collections.abc import Sequence

import numpy as np

from lab.training.head.importance import Floats
from outrider.contracts.errors import ShapeError

_RESAMPLES, _AT_ONCE = 10_000, 500


def drop_upper_bound(
    strict: Sequence[float], semantic: Sequence[float], *, confidence: float = 0.95, seed: int = 0
) -> float:
    """Upper end of the one-sided bootstrap interval (percentiles) of the mean of ``strict - semantic``.

    Both are ``[T]`` scores of the same T tasks, T >= 1.
    """
    if len(strict) != len(semantic) or not len(strict):
        raise ShapeError(f"needs scores of the same tasks, at least one, found {len(strict)} and {len(semantic)}")
    drops = np.asarray(strict, np.float64) - np.asarray(semantic, np.float64)
    return float(np.quantile(_resampled_means(drops, seed), confidence, method="higher"))


def mean_interval(scores: Sequence[float], *, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Both ends of the bootstrap interval of a mean."""
    means = _resampled_means(np.asarray(scores, np.float64), seed)
    low, high = np.quantile(means, [(1.0 - confidence) / 2, (1.0 + confidence) / 2])
    return float(low), float(high)


def ratio_interval(
    tops: Sequence[float], bottoms: Sequence[float], *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Both ends of the bootstrap interval of a ratio of sums, pairs redrawn; 0 to 1 if the lower sum is 0."""
    pairs = np.stack([np.asarray(tops, np.float64), np.asarray(bottoms, np.float64)], axis=1)
    if not pairs[:, 1].sum():
        return 0.0, 1.0
    means = _resampled_means(pairs, seed)
    found = means[means[:, 1] > 0.0]
    low, high = np.quantile(found[:, 0] / found[:, 1], [(1.0 - confidence) / 2, (1.0 + confidence) / 2])
    return float(low), float(high)


def choose_threshold(thresholds: Sequence[float], bounds: Sequence[float], most_drop: float) -> float:
    """The last of rising thresholds before the first whose bound is not below ``most_drop``; 0 if there is none."""
    chosen = 0.0
    for threshold, bound in zip(thresholds, bounds, strict=True):
        if not bound < most_drop:
            break
        chosen = threshold
    return chosen


def _resampled_means(values: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    size = _AT_ONCE, len(values)
    parts = [values[rng.integers(0, len(values), size)].mean(1) for _ in range(_RESAMPLES // _AT_ONCE)]
    return np.concatenate(parts)
