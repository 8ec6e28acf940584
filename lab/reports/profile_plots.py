"""Plots of ``outrider profile``: WISP's Figures 9 and 11 for this machine."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from lab.reports.plots import COLOURS, describe, figure, save
from outrider.contracts.cost import LinearCostModel
from outrider.costs.fit_figures import BatchKind, BatchSample, Floats, medians_of, works_of
from outrider.costs.fitting import FitKind, FittedModel

_BAND = 0.1
_COLOUR_OF = dict(zip(BatchKind, COLOURS, strict=False))
_COMPONENTS = ("linear", "interactions", "cached", "constant")


def plot_profile(folder: Path, train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> None:
    """Write two plots: the fit with its residuals, and errors by kind of batch."""
    _plot_fit(folder / "profile_fit.png", train, test, fitted)
    _plot_errors(folder / "profile_errors.png", train, test, fitted)


def _plot_fit(file: Path, train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> None:
    """Predicted against measured, residuals and relative errors (Figure 9), for both forms of the model."""
    kinds = (FitKind.RELATIVE, FitKind.OFFSETS)
    drawn = figure(13.0, 7.6)
    grid = drawn.subplots(len(kinds), 3)
    for row, kind in zip(grid, kinds, strict=True):
        model = fitted.reports[kind].model
        _scatter(row[0], train, test, model, kind)
        residuals, relative = _errors_s(test, model) * 1e3, 100 * _errors_s(test, model) / medians_of(test)
        row[1].hist(residuals, bins=30, color=COLOURS[0])
        describe(row[1], "Residuals, unseen batches", "predicted - measured (ms)", "batches")
        row[2].hist(relative, bins=30, color=COLOURS[0])
        for edge in (-100 * _BAND, 100 * _BAND):
            row[2].axvline(edge, color="grey", linestyle="--", linewidth=1)
        describe(row[2], "Relative errors, unseen batches", "(predicted - measured) / measured (%)", "batches")
    save(drawn, file)


def _scatter(
    axes: Axes, train: Sequence[BatchSample], test: Sequence[BatchSample], model: LinearCostModel, kind: FitKind
) -> None:
    for samples, marker, size in ((train, "o", 14), (test, "^", 26)):
        for batch_kind in BatchKind:
            chosen = [sample for sample in samples if sample.kind is batch_kind]
            if not chosen:
                continue
            label = batch_kind.replace("_", " ") + (", unseen" if samples is test else "")
            predicted_ms = 1e3 * model.predict_works_s(works_of(chosen))
            axes.scatter(
                1e3 * medians_of(chosen),
                predicted_ms,
                s=size,
                marker=marker,
                color=_COLOUR_OF[batch_kind],
                alpha=0.7 if samples is test else 0.35,
                linewidths=0,
                label=label,
            )
    measured_ms = 1e3 * medians_of((*train, *test))
    ends = np.array([measured_ms.min() * 0.9, measured_ms.max() * 1.1])
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, ends * (1 - _BAND), ends * (1 + _BAND), color="grey", alpha=0.2, linewidth=0, label="10 %")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    describe(axes, f"Batch time: {kind}", "measured (ms)", "predicted (ms)")
    axes.legend(fontsize=6, loc="upper left")


def _plot_errors(file: Path, train: Sequence[BatchSample], test: Sequence[BatchSample], fitted: FittedModel) -> None:
    """Absolute errors by kind of batch, and the number of batches that each component dominates (Figure 11)."""
    model = fitted.model
    drawn = figure(11.0, 4.4)
    left, right = drawn.subplots(1, 2)
    batch_kinds = [batch_kind for batch_kind in BatchKind if any(sample.kind is batch_kind for sample in test)]
    errors = [1e3 * np.abs(_errors_s([s for s in test if s.kind is batch_kind], model)) for batch_kind in batch_kinds]
    names = [batch_kind.replace("_", " ") for batch_kind in batch_kinds]
    left.boxplot(errors, tick_labels=[f"{name}\n(n={len(found)})" for name, found in zip(names, errors, strict=True)])
    describe(left, "Absolute errors, unseen batches", "", "|predicted - measured| (ms)")
    counts = Counter((sample.kind, _dominant(sample, model)) for sample in (*train, *test))
    bottoms = np.zeros(len(batch_kinds))
    for component, colour in zip(_COMPONENTS, COLOURS, strict=False):
        heights = np.array([counts[batch_kind, component] for batch_kind in batch_kinds])
        right.bar(names, heights, bottom=bottoms, color=colour, label=component)
        bottoms = bottoms + heights
    describe(right, "Largest component of the prediction, all batches", "", "batches")
    right.legend(fontsize=8)
    save(drawn, file)


def _errors_s(samples: Sequence[BatchSample], model: LinearCostModel) -> Floats:
    errors: Floats = model.predict_works_s(works_of(samples)) - medians_of(samples)
    return errors


def _dominant(sample: BatchSample, model: LinearCostModel) -> str:
    work = sample.work
    parts = (
        model.seconds_per_token * work.new_tokens,
        model.seconds_per_interaction * work.interactions,
        model.seconds_per_cached_token * work.cached_tokens,
        model.seconds_per_batch,
    )
    return _COMPONENTS[int(np.argmax(parts))]
