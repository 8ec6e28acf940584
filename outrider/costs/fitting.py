"""Fit the cost model to measured batches (WISP section 4.4 and Appendix C). Pure and seeded.

The same samples are fitted three ways: eq. 19 by ordinary least squares as in the paper (non-negative here); eq. 19
with errors relative to the measured time, since batches of 50 ms decide about deadlines as much as those of a second;
and the latter with row offsets. The last is the model to use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.optimize import nnls

from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, row_buckets
from outrider.contracts.errors import ParameterError
from outrider.costs.fit_figures import (
    PAPER_KINDS,
    BatchKind,
    BatchSample,
    FitFigures,
    Floats,
    assess,
    figures,
    medians_of,
    noise_floor_mape,
    works_of,
)

_FOLDS = 5
_GUARD_QUANTILE = 0.9
_OFFSET_SHRINKAGE = 1.0  # weight, in samples, of the belief that a bucket has no offset
_ROUNDS = 20  # alternations between coefficients and offsets; they settle in about five


class FitKind(StrEnum):
    ORDINARY = "eq. 19, ordinary"
    RELATIVE = "eq. 19, relative"
    OFFSETS = "with row offsets"


@dataclass(frozen=True, slots=True)
class Interval:
    """A coefficient with its 95 % bootstrap interval, in seconds per unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CostFitReport:
    model: LinearCostModel
    coefficients: Mapping[str, Interval]  # by field of ``LinearCostModel``
    train: FitFigures  # on the paper's kinds of batches; ``test`` likewise, None without test samples
    test: FitFigures | None
    # figures on the test samples of each kind of batch; on the training samples if there are no others
    by_kind: Mapping[BatchKind, FitFigures]
    cross_validation: tuple[float, float]  # mean and standard deviation of R2 over five folds of the training samples


@dataclass(frozen=True, slots=True)
class FittedModel:
    reports: Mapping[FitKind, CostFitReport]

    @property
    def model(self) -> LinearCostModel:
        return self.reports[FitKind.OFFSETS].model

    def guarded(self, unseen: Sequence[BatchSample]) -> LinearCostModel:
        """Return the model with a guard: the relative shortfall that a tenth of ``unseen`` samples exceed."""
        if not unseen:
            return self.model
        short = medians_of(unseen) / self.model.predict_works_s(works_of(unseen)) - 1.0
        return replace(self.model, relative_guard=max(0.0, float(np.quantile(short, _GUARD_QUANTILE, method="higher"))))

    def quality(self, train: Sequence[BatchSample], test: Sequence[BatchSample]) -> dict[str, float | None]:
        """Return the figures kept in a profile, on the samples of the fit and on the others."""
        report = self.reports[FitKind.OFFSETS]
        verification = [sample for sample in test if sample.kind is BatchKind.VERIFICATION]
        return {
            "train_r2": report.train.r2,
            "train_mape": report.train.mape,
            "test_r2": report.test.r2 if report.test else None,
            "test_mae_s": report.test.mae_s if report.test else None,
            "test_mape": report.test.mape if report.test else None,
            "test_mape_verification": assess(report.model, verification).mape if verification else None,
            "noise_floor_mape": noise_floor_mape((*train, *test)),
            "largest_measured_s": float(medians_of((*train, *test)).max()),
        }


_COEFFICIENTS = ("seconds_per_token", "seconds_per_interaction", "seconds_per_cached_token", "seconds_per_batch")


def fit(
    train: Sequence[BatchSample], test: Sequence[BatchSample] = (), seed: int = 0, bootstraps: int = 1000
) -> FittedModel:
    """Fit on ``train`` and assess on ``test``.

    Eq. 19 is fitted to the paper's kinds of batches, row offsets to all samples. Figures are of the paper's kinds
    together and of each kind alone.

    Raises:
        ParameterError: too few training samples of the paper's kinds, or a time that is not positive and finite.
    """
    paper = _of_paper(train)
    if len(paper) < 2 * _FOLDS:
        raise ParameterError("train", f"at least {2 * _FOLDS} samples of {', '.join(PAPER_KINDS)}", len(paper))
    if not (np.isfinite(medians_of((*train, *test))).all() and (medians_of((*train, *test)) > 0.0).all()):
        raise ParameterError("seconds", "times above 0", "others")
    reports = {}
    for kind, fitted in _FITS.items():
        used = _arrays(train if kind is FitKind.OFFSETS else paper)
        reports[kind] = _report(fitted, used, train, test, np.random.default_rng(seed), bootstraps)
    return FittedModel(reports)


def fit_offsets(samples: Sequence[BatchSample]) -> LinearCostModel:
    """Fit eq. 19 with row offsets to any samples (at least one), as ``FittedModel.model`` is.

    Offsets and coefficients are fitted in turn. An offset is the weighted mean of the residuals in its bucket, shrunk
    towards 0; it is 0 in a bucket without samples.
    """
    return _with_offsets(*_arrays(samples))


def _with_offsets(works: Floats, measured_s: Floats) -> LinearCostModel:
    # Weights 1 / time^2 make squared errors relative. The shrinkage adds one sample of mean weight with residual 0.
    buckets, weights = row_buckets(works[:, 0]), measured_s**-2.0
    counts = np.bincount(buckets, minlength=ROW_BUCKETS)
    totals = np.bincount(buckets, weights, ROW_BUCKETS) * (1.0 + _OFFSET_SHRINKAGE / np.maximum(counts, 1))
    totals[counts == 0] = 1.0  # avoids 0 / 0: the offset is 0 / 1
    slopes, offsets = _slopes(works, measured_s, 1.0 / measured_s), np.zeros(ROW_BUCKETS)
    for _ in range(_ROUNDS):
        residuals = measured_s - works @ slopes[:3] - slopes[3]
        offsets = np.bincount(buckets, weights * residuals, ROW_BUCKETS) / totals
        slopes = _slopes(works, measured_s - offsets[buckets], 1.0 / measured_s)
    return LinearCostModel(*slopes, tuple(offsets.tolist()))


_Fit = Callable[[Floats, Floats], LinearCostModel]
_FITS: Mapping[FitKind, _Fit] = {
    FitKind.ORDINARY: lambda works, s: LinearCostModel(*_slopes(works, s, np.ones(len(works)))),
    FitKind.RELATIVE: lambda works, s: LinearCostModel(*_slopes(works, s, 1.0 / s)),
    FitKind.OFFSETS: _with_offsets,
}


def _slopes(works: Floats, wanted_s: Floats, weights: Floats) -> tuple[float, float, float, float]:
    """Return a, b_compute, b_read, c by non-negative least squares. ``weights`` multiply unsquared residuals."""
    rows = np.column_stack((works, np.ones(len(works))))
    # Columns differ by six orders of magnitude: scaled to one size for a well-conditioned problem.
    sizes = np.maximum(rows.max(axis=0), 1.0)
    found, _ = nnls(rows / sizes * weights[:, None], wanted_s * weights)
    a, b_compute, b_read, c = (found / sizes).tolist()
    return a, b_compute, b_read, c


def _arrays(samples: Sequence[BatchSample]) -> tuple[Floats, Floats]:
    return works_of(samples), medians_of(samples)


def _of_paper(samples: Sequence[BatchSample]) -> list[BatchSample]:
    return [sample for sample in samples if sample.kind in PAPER_KINDS]


def _report(
    fitted: _Fit,
    used: tuple[Floats, Floats],
    train: Sequence[BatchSample],
    test: Sequence[BatchSample],
    rng: np.random.Generator,
    bootstraps: int,
) -> CostFitReport:
    works, measured_s = used
    model, unseen, judged = fitted(*used), _of_paper(test), test or train
    values = [model.slopes]
    for _ in range(bootstraps):
        drawn = rng.integers(len(works), size=len(works))
        values.append(fitted(works[drawn], measured_s[drawn]).slopes)
    lows, highs = np.quantile(values[1:] or values, (0.025, 0.975), axis=0)
    by_kind = {kind: [sample for sample in judged if sample.kind is kind] for kind in BatchKind}
    return CostFitReport(
        model=model,
        coefficients={
            name: Interval(value, float(low), float(high))
            for name, value, low, high in zip(_COEFFICIENTS, values[0], lows, highs, strict=True)
        },
        train=assess(model, _of_paper(train)),
        test=assess(model, unseen) if unseen else None,
        by_kind={kind: assess(model, chosen) for kind, chosen in by_kind.items() if chosen},
        cross_validation=_cross_validation(fitted, works, measured_s, rng),
    )


def _cross_validation(fitted: _Fit, works: Floats, measured_s: Floats, rng: np.random.Generator) -> tuple[float, float]:
    found = []
    for fold in np.array_split(rng.permutation(len(works)), _FOLDS):
        model = fitted(np.delete(works, fold, axis=0), np.delete(measured_s, fold))
        r2 = figures(measured_s[fold], model.predict_works_s(works[fold])).r2
        if r2 is not None:
            found.append(r2)
    return float(np.mean(found)), float(np.std(found))
