"""Tokens per second over wasted drafting, like WISP's Figure 1 (goodput over waste)."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from cluster.reports.plots import COLOURS, describe, figure, save
from lab.bench.stops.measure import Figures


def plot_waste(file: Path, found: Sequence[Figures]) -> None:
    """A panel for each number of clients, a point for each arm."""
    loads = list(dict.fromkeys(one.clients for one in found))
    drawn = figure(6.5 * len(loads), 4.8)
    for axes, clients in zip(drawn.subplots(1, len(loads), squeeze=False)[0], loads, strict=True):
        mine = [one for one in found if one.clients == clients]
        for number, arm in enumerate(dict.fromkeys(one.arm for one in mine)):
            runs = [one for one in mine if one.arm == arm]
            wasted_ms, speed = (
                1e3 * mean(one.wasted_s_per_token for one in runs),
                mean(one.tokens_per_s for one in runs),
            )
            axes.scatter([wasted_ms], [speed], 30, COLOURS[number % len(COLOURS)])
            axes.annotate(arm, (wasted_ms, speed), xytext=(5, 4), textcoords="offset points", fontsize=8)
        describe(axes, f"{clients} at once", "wasted drafting, ms per committed token", "tokens per second")
        axes.margins(x=0.2)
    save(drawn, file)
