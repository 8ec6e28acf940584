"""How well scores rank positives above negatives."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64] | Sequence[int]


def area_under_curve(scores: Floats, labels: Labels) -> float | None:
    """Probability that a random positive (label 1) scores above a random negative; ties count half."""
    positive = np.asarray(labels) == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return None
    return float((rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))
