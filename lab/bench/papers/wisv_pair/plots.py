"""Score and accepted length over the threshold, and latency over the window by link (WISV's Figures 3, 4, 5, 7)."""

from collections.abc import Sequence
from pathlib import Path

from lab.bench.papers.wisv_pair.cluster import Row
from lab.bench.papers.wisv_pair.frontier import HEAD, UNAWARE, Frontier
from lab.reports.plots import COLOURS, describe, figure, save
from lab.training.head.links import EVALUATED


def plot_thresholds(file: Path, found: Frontier) -> None:
    """Score and accepted length over the threshold, by link: the head knows the link (Figure 3) or not (Figure 5)."""
    kinds = [kind for kind in (HEAD, UNAWARE) if any(row.rule == kind for row in found.rows)]
    drawn = figure(5.5 * len(kinds), 7.0)
    panels = drawn.subplots(2, len(kinds), sharex=True, sharey="row", squeeze=False)
    for kind, scores, lengths in zip(kinds, *panels, strict=True):
        for link, colour in zip(EVALUATED, COLOURS, strict=False):
            own = [row for row in found.rows if (row.rule, row.link) == (kind, link)]
            thresholds = [row.threshold for row in own]
            scores.plot(thresholds, [row.score for row in own], "o-", color=colour, label=link)
            scores.fill_between(
                thresholds, [row.score_low for row in own], [row.score_high for row in own], color=colour, alpha=0.1
            )
            lengths.plot(thresholds, [row.aal for row in own], "o-", color=colour)
        scores.axhline(found.strict.score, color="black", linestyle="--", label="strict")
        lengths.axhline(found.strict.aal, color="black", linestyle="--")
        describe(scores, f"{kind}, K = {found.window}", "threshold", "score")
        describe(lengths, "", "threshold", "tokens committed per round (AAL)")
    drawn.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    save(drawn, file)


def plot_latencies(file: Path, found: Sequence[Row]) -> None:
    """Latency of an answer over the window (Figures 4 and 7)."""
    links = list(dict.fromkeys(row.link for row in found))
    methods = list(dict.fromkeys(row.method for row in found if row.window is not None))
    across = 2 if len(links) == 4 else min(3, len(links))
    drawn = figure(4.2 * across, 3.6 * -(-len(links) // across))
    panels = drawn.subplots(-(-len(links) // across), across, squeeze=False).flat
    for axes in panels[len(links) :]:
        axes.set_axis_off()
    for axes, link in zip(panels, links, strict=False):
        for method, colour in zip(methods, COLOURS, strict=False):
            own = [row for row in found if (row.link, row.method) == (link, method) and row.window is not None]
            own.sort(key=lambda row: row.window or 0)
            seconds = [row.latency_s for row in own]
            axes.plot([row.window for row in own], [one.mean for one in seconds], "o-", color=colour, label=method)
            axes.fill_between(
                [row.window or 0 for row in own],
                [one.low for one in seconds],
                [one.high for one in seconds],
                color=colour,
                alpha=0.15,
            )
        axes.set_yscale("log")
        describe(axes, link, "window", "seconds of an answer")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(methods))
    save(drawn, file)
