"""The plot of ``outrider bench interference``: pass times over the long request's length (WISP figure 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator, NullFormatter

from bench.paper_output import COLOURS, describe, figure, save

if TYPE_CHECKING:
    from bench.interference import Figures, Median


def plot(file: Path, found: Sequence["Figures"]) -> None:
    """One panel for each chunk: short alone, long alone, and what a short round takes beside it."""
    chunks = list(dict.fromkeys(one.chunk_tokens for one in found))
    drawn = figure(4.6 * len(chunks), 3.9)
    panels = drawn.subplots(1, len(chunks), sharey=True, squeeze=False)[0]
    for axes, chunk in zip(panels, chunks, strict=True):
        group = [one for one in found if one.chunk_tokens == chunk]
        lengths = [one.long_tokens for one in group]
        for number, (name, values) in enumerate(
            (
                ("long alone", [one.long_ms for one in group]),
                ("long, with short rounds beside it", [one.long_shared_ms for one in group]),
                ("short round beside the long one", [one.shared_ms for one in group]),
                ("short round alone", [one.short_ms for one in group]),
            )
        ):
            if chunk is None and number == 1:
                continue  # its one pass is the short round's
            axes.errorbar(
                lengths,
                [value.median for value in values],
                _spans(values),
                color=COLOURS[number],
                marker="o^sD"[number],
                markersize=5,
                linestyle="--" if number == 1 else "-",
                capsize=3,
                label=name,
            )
        title = "prompt computed whole" if chunk is None else f"in chunks of {chunk} tokens"
        describe(axes, title, "tokens of the long request's unseen prompt", "milliseconds")
        axes.label_outer()
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    handles, names = panels[-1].get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8)
    save(drawn, file)


def _spans(values: Sequence["Median"]) -> list[list[float]]:
    return [[value.median - value.low for value in values], [value.high - value.median for value in values]]
