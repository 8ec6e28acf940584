"""Plot of ``outrider train predictor``: WISP's Figures 2, 3 and 10 for a pair and a rule."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from lab.reports.plots import COLOURS, describe, figure, save
from lab.training.predictor.quality import FeatureTrend
from lab.training.predictor.train import FamilyReport, PredictorReport

_COLUMNS = 4


def plot_predictor(file: Path, report: PredictorReport) -> None:
    panels = len(report.trends) + 1 + len(report.families)
    rows = -(-panels // _COLUMNS)
    drawn = figure(3.2 * _COLUMNS, 2.9 * rows)
    axes = drawn.subplots(rows, _COLUMNS).flatten()
    for place, trend in zip(axes, report.trends, strict=False):
        _plot_trend(place, trend)
    _plot_correlations(axes[len(report.trends)], report.trends)
    for place, one in zip(axes[len(report.trends) + 1 :], report.families, strict=False):
        _plot_confusion(place, one)
    for place in axes[panels:]:
        place.set_axis_off()
    save(drawn, file)


def _plot_trend(axes: Axes, trend: FeatureTrend) -> None:
    """Accepted share over the feature's mean, per tenth of the tokens (Figure 2)."""
    axes.plot([mean for mean, _, _ in trend.bins], [share for _, share, _ in trend.bins], "o-", color=COLOURS[0])
    axes.set_ylim(0.0, 1.0)
    describe(axes, f"Acceptance by {trend.feature}", trend.feature, "share accepted")


def _plot_correlations(axes: Axes, trends: tuple[FeatureTrend, ...]) -> None:
    """Pearson correlation of each feature with acceptance (Figure 3)."""
    axes.barh([trend.feature for trend in trends], [trend.correlation or 0.0 for trend in trends], color=COLOURS[2])
    axes.set_xlim(-1.0, 1.0)
    describe(axes, "Correlation with acceptance", "Pearson's r", "")


def _plot_confusion(axes: Axes, one: FamilyReport) -> None:
    """Confusion matrix at a threshold of one half (Figure 10)."""
    confusion = one.test.confusion
    counts = np.array(
        [[confusion.true_rejected, confusion.false_accepted], [confusion.false_rejected, confusion.true_accepted]],
        np.float64,
    )
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1.0)
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for (row, column), share in np.ndenumerate(shares):
        text = f"{share:.1%}\n{counts[row, column]:.0f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if share > 0.6 else "black", fontsize=9)
    labels = ("rejected", "accepted")
    axes.set_xticks((0, 1), labels)
    axes.set_yticks((0, 1), labels, rotation=90, va="center")
    describe(axes, one.family, "said", "was")
    axes.grid(visible=False)
