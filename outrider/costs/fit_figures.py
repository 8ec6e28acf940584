"""Compute how well a cost model predicts measured batches: the figures of WISP Appendix C (its Table 7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of

Floats = npt.NDArray[np.float64]


class BatchKind(StrEnum):
    """What dominates a batch, by how it was made (WISP Appendix C); ``VERIFICATION`` is ours."""

    COMPUTE_BOUND = "compute_bound"  # nothing cached
    MEMORY_BOUND = "memory_bound"  # few new positions behind long prefixes
    MIXED = "mixed"  # both kinds of blocks in one batch
    VERIFICATION = "verification"  # as in real rounds: short drafts behind resident prefixes


PAPER_KINDS = (BatchKind.COMPUTE_BOUND, BatchKind.MEMORY_BOUND, BatchKind.MIXED)


@dataclass(frozen=True, slots=True)
class BatchSample:
    kind: BatchKind
    blocks: tuple[VerifyCost, ...]  # at least one, with positions to compute
    seconds: tuple[float, ...]  # one per repeat; at least one

    @property
    def work(self) -> BatchWork:
        return work_of(self.blocks)

    @property
    def median_s(self) -> float:
        return median(self.seconds)

    @property
    def variation(self) -> float:
        """Coefficient of variation: standard deviation of the repeats over their mean; 0 for a single one."""
        if len(self.seconds) < 2:
            return 0.0
        return float(np.std(self.seconds, ddof=1) / np.mean(self.seconds))


@dataclass(frozen=True, slots=True)
class FitFigures:
    """Errors of predictions. A figure is None if it is undefined: too few samples, or no spread among them."""

    samples: int
    r2: float | None  # share of the variance explained
    adjusted_r2: float | None  # r2 corrected for the number of predictors
    rmse_s: float
    mae_s: float
    mape: float  # mean of |error| over the measured time
    largest_s: float
    largest_relative: float  # absolute error over the measured time


def works_of(samples: Sequence[BatchSample]) -> Floats:
    """Return ``[n, 3]`` new tokens, interactions, cached tokens."""
    works = [sample.work for sample in samples]
    return np.array([(work.new_tokens, work.interactions, work.cached_tokens) for work in works], dtype=np.float64)


def medians_of(samples: Sequence[BatchSample]) -> Floats:
    """``[n]`` seconds."""
    return np.array([sample.median_s for sample in samples])


def assess(model: CostModel, samples: Sequence[BatchSample], predictors: int = 3) -> FitFigures:
    return figures(medians_of(samples), model.predict_works_s(works_of(samples)), predictors)


def figures(measured_s: Floats, predicted_s: Floats, predictors: int = 3) -> FitFigures:
    """Return the figures of ``[n]`` predictions, n >= 1; ``predictors`` is the number of terms beside the constant."""
    errors, count = predicted_s - measured_s, len(measured_s)
    spread = float(((measured_s - measured_s.mean()) ** 2).sum())
    r2 = 1.0 - float((errors**2).sum()) / spread if spread > 0.0 else None
    freedom = count - predictors - 1
    relative = np.abs(errors) / measured_s
    return FitFigures(
        samples=count,
        r2=r2,
        adjusted_r2=None if r2 is None or freedom < 1 else 1.0 - (1.0 - r2) * (count - 1) / freedom,
        rmse_s=float(np.sqrt((errors**2).mean())),
        mae_s=float(np.abs(errors).mean()),
        mape=float(relative.mean()),
        largest_s=float(np.abs(errors).max()),
        largest_relative=float(relative.max()),
    )


def noise_floor_mape(samples: Sequence[BatchSample]) -> float | None:
    """Return the MAPE of predicting each repeat by the median of the others, a bound for any model.

    None if no sample was repeated.
    """
    errors = []
    for sample in samples:
        for index, one in enumerate(sample.seconds):
            others = sample.seconds[:index] + sample.seconds[index + 1 :]
            if others:
                errors.append(abs(median(others) - one) / one)
    return float(np.mean(errors)) if errors else None
