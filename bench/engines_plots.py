"""The plots of ``outrider bench engines``."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from bench.engines_figures import RoundFigures, ServedFigures, Spread
from cluster.reports.plots import COLOURS, describe, figure, save

_MARKERS = "o^sDvPX*"


def plot_rounds(file: Path, figures: Sequence[RoundFigures]) -> None:
    """Warm rounds over generations: a panel for each prefix, at the longest draft that most arms have."""
    warm = [one for one in figures if one.cell.warm]
    arms_at = {
        draft: {arm for one in warm if one.cell.draft == draft for arm in one.milliseconds} for draft in _drafts(warm)
    }
    shown = max(arms_at, key=lambda draft: (len(arms_at[draft]), draft))
    prefixes = sorted({one.cell.prefix for one in warm})
    drawn = figure(4.2 * len(prefixes), 3.9)
    panels = drawn.subplots(1, len(prefixes), sharey=True, squeeze=False)[0]
    arms = list(dict.fromkeys(arm for one in warm for arm in one.milliseconds))
    for axes, prefix in zip(panels, prefixes, strict=True):
        group = [one for one in warm if one.cell.prefix == prefix and one.cell.draft == shown]
        for number, arm in enumerate(arms):
            points = [(one.cell.generations, one.milliseconds[arm]) for one in group if arm in one.milliseconds]
            _line(axes, number, arm, points)
        describe(axes, f"K = {shown}, prefix {prefix}", "generations", "milliseconds of a round")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    drawn.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    save(drawn, file)


def _drafts(figures: Sequence[RoundFigures]) -> set[int]:
    return {one.cell.draft for one in figures}


def plot_served(file: Path, figures: Sequence[ServedFigures]) -> None:
    """Output tokens per second over clients."""
    drawn = figure(6.4, 4.6)
    axes = drawn.subplots()
    for number, arm in enumerate(dict.fromkeys(one.arm for one in figures)):
        points = [(one.clients, one.tokens_per_s) for one in figures if one.arm == arm and one.tokens_per_s is not None]
        _line(axes, number, arm, points)
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
