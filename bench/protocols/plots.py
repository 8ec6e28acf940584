"""The plot of ``outrider bench protocols``: seconds per committed token by method, one panel per cell."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import LogLocator, NullFormatter

from bench.protocols.figures import Figures
from bench.protocols.plan import CHEAPEST, METHODS, NO_DRAFT
from cluster.reports.plots import COLOURS, figure, save


def plot(file: Path, found: Sequence[Figures]) -> None:
    """Charged seconds as dots with intervals, wall seconds as crosses; a line at ``cheapest``."""
    cells = sorted({one.cell for one in found}, key=lambda c: (c.temperature, c.rtt_ms, c.rate_mbps))
    columns = min(3, len(cells))
    drawn = figure(3.6 * columns, 2.7 * -(-len(cells) // columns))
    panels = drawn.subplots(-(-len(cells) // columns), columns, sharex=True, sharey=True, squeeze=False)
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(METHODS[1:-1])}
    colours |= {NO_DRAFT: "grey", CHEAPEST: "black"}
    rows = {method: -number for number, method in enumerate(METHODS)}
    for axes, cell in zip(panels.flat, cells, strict=False):
        for one in found:
            if one.cell != cell:
                continue
            at, spent = rows[one.method], one.charged_s
            span = [[max(spent.mean - spent.low, 0.0) * 1e3], [max(spent.high - spent.mean, 0.0) * 1e3]]
            axes.errorbar(
                [spent.mean * 1e3], [at], xerr=span, fmt="o", color=colours[one.method], capsize=3, markersize=5
            )
            axes.plot([one.wall_s.mean * 1e3], [at], "x", color=colours[one.method], alpha=0.6)
            if one.method == CHEAPEST:
                axes.axvline(spent.mean * 1e3, color="black", linewidth=0.8, alpha=0.4)
        sampled = "greedy" if cell.greedy else f"temperature {cell.temperature:g}"
        axes.set_title(f"{cell.rate_mbps:g} Mbps, RTT {cell.rtt_ms:g} ms, {sampled}", fontsize=9)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=True, which="both", axis="x", alpha=0.3)
        axes.set_yticks(list(rows.values()), list(rows), fontsize=8)
    for axes in list(panels.flat)[len(cells) :]:
        axes.set_visible(False)
    drawn.supxlabel("milliseconds per committed token", fontsize=9)
    drawn.suptitle(
        "Dots: link as modelled and measured computation, 95 % interval. Crosses: wall clock. Line: cheapest.",
        fontsize=9,
    )
    save(drawn, file)
