"""Means with confidence intervals over positions that come in responses."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over positions and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """``0.412 [0.380, 0.441]``."""
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def estimate(responses: Sequence[npt.NDArray[np.float64]], resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of all positions; percentile bootstrap that redraws whole responses.

    Positions of one response resemble each other, so redrawing them one by one would make the interval too narrow.

    Raises:
        ValueError: no position at all.
    """
    sums = np.array([float(response.sum()) for response in responses])
    counts = np.array([len(response) for response in responses])
    if not counts.sum():
        raise ValueError("needs at least one position, found none")
    picks = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    low, high = np.quantile(sums[picks].sum(1) / np.maximum(counts[picks].sum(1), 1), (0.025, 0.975))
    return Estimate(float(sums.sum() / counts.sum()), float(low), float(high))
