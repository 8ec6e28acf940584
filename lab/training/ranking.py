"""How well scores rank what is positive above what is not."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64] | Sequence[int]


def area_under_curve(scores: Floats, labels: Labels) -> float | None:
    """How probable it is that one of label 1 scores more than one of label 0; ties count half."""
    positive = np.asarray(labels) == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return None
    return float((rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))
