"""Smoothed importance of mismatches: a critical mismatch raises that of its neighbours (WISV eq. 28).

The published formula is lost. The sum ranks a critical mismatch among others above a lone one; the maximum gives every
critical one 1, so that relabelling cannot tell them apart.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Smoothing(StrEnum):
    SUM = "sum"
    MAX = "max"


def smoothed_importance(
    places: Sequence[int], labels: Sequence[int], kappa: float, smoothing: Smoothing = Smoothing.SUM
) -> Floats:
    """``[M]``: sum or maximum over m' of ``l_m' exp(-|m - m'| / kappa)``.

    Args:
        places: ``[M]``, which mismatch of its answer each one is.
        labels: ``[M]``, 1 if it is critical.
        kappa: mismatches over which importance falls to 1 / e, above 0.
        smoothing: sum or maximum.
    """
    if not len(places):
        return np.empty(0)
    at = np.asarray(places, np.float64)
    parts = np.exp(-np.abs(at[:, None] - at[None]) / kappa) * np.asarray(labels, np.float64)
    found: Floats = parts.sum(1) if smoothing is Smoothing.SUM else parts.max(1)
    return found
