"""The plots of ``outrider bench engines``."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from bench.engines.plan import RoundCell
from bench.harness.samples import Sample, Spread, figures
from cluster.reports.plots import COLOURS, describe, figure, save

_MARKERS = "o^sDvPX*"


def plot_rounds(file: Path, samples: Sequence[Sample[RoundCell]]) -> None:
    """Warm rounds over generations: a panel for each prefix, at the longest draft that most arms have."""
    warm = [one for one in figures(samples) if one.cell.warm and one.values]
    arms_at = {draft: {one.arm for one in warm if one.cell.draft == draft} for draft in {w.cell.draft for w in warm}}
    shown = max(arms_at, key=lambda draft: (len(arms_at[draft]), draft))
    prefixes = sorted({one.cell.prefix for one in warm})
    drawn = figure(4.2 * len(prefixes), 3.9)
    panels = drawn.subplots(1, len(prefixes), sharey=True, squeeze=False)[0]
    arms = list(dict.fromkeys(one.arm for one in warm))
    for axes, prefix in zip(panels, prefixes, strict=True):
        for number, arm in enumerate(arms):
            group = [one for one in warm if (one.arm, one.cell.prefix, one.cell.draft) == (arm, prefix, shown)]
            _line(axes, number, arm, [(one.cell.generations, one.values["ms"]) for one in group])
        describe(axes, f"K = {shown}, prefix {prefix}", "generations", "milliseconds of a round")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    drawn.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    save(drawn, file)


def plot_served(file: Path, samples: Sequence[Sample[int]]) -> None:
    """Output tokens per second over clients."""
    found = [one for one in figures(samples) if "tokens_per_s" in one.values]
    drawn = figure(6.4, 4.6)
    axes = drawn.subplots()
    for number, arm in enumerate(dict.fromkeys(one.arm for one in found)):
        _line(axes, number, arm, [(one.cell, one.values["tokens_per_s"]) for one in found if one.arm == arm])
    describe(axes, "the same chats, the same pair", "clients", "output tokens per second")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(drawn, file)


def _line(axes: Axes, number: int, arm: str, points: Sequence[tuple[int, Spread]]) -> None:
    ordered = sorted(points, key=lambda point: point[0])
    axes.errorbar(
        [at for at, _ in ordered],
        [value.median for _, value in ordered],
        [[value.median - value.low for _, value in ordered], [value.high - value.median for _, value in ordered]],
        color=COLOURS[number % len(COLOURS)],
        marker=_MARKERS[number % len(_MARKERS)],
        linestyle="-" if number < len(COLOURS) else "--",
        markersize=5,
        capsize=3,
        label=arm,
    )
