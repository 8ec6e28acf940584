"""Draws a shipped dashboard from Prometheus data in Grafana's layout. The pictures are not Grafana's.

Everything is read from the dashboard's JSON: panel positions in the grid, titles, expressions, legends, units and
thresholds. Only the kinds of panels that our dashboards have are supported; another one is refused.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import matplotlib as mpl

from outrider.contracts.errors import ParameterError

mpl.use("Agg")

from matplotlib import pyplot as plt  # (behind the choice of what it draws with)
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Ask = Callable[[str], list[dict[str, Any]]]  # an expression to Prometheus's matrix of it, over the drawn time

_COLUMNS = 24
_COLUMN_IN, _ROW_IN, _HEAD_IN, _DPI = 0.62, 0.33, 0.75, 80
_COLOURS = {"green": "#73bf69", "yellow": "#d9a800", "red": "#e02f44"}
_BACK, _PANEL, _INK, _DIM, _GRID = "#f4f5f5", "#ffffff", "#24292e", "#6b7178", "#e3e5e8"
_VARIABLE = re.compile(r"\$(\w+)")
_NAMES_SHOWN, _POINTS = 9, 1.2
_MOST_NAME_CHARS = 34


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its legend and values by time (seconds since the start; gaps are not kept)."""

    name: str
    at_s: tuple[float, ...]
    values: tuple[float, ...]


def draw(dashboard: Path, file: Path, ask: Ask, variables: Mapping[str, str], caption: str) -> int:
    """Write a dashboard as a PNG; return how many of its panels have data.

    Args:
        dashboard: its JSON.
        file: to write.
        ask: runs a range query in Prometheus.
        variables: values for ``$cluster`` and the like, and for ``$__rate_interval``.
        caption: below the title: source of the values.

    Raises:
        ParameterError: a panel's kind is not supported, or a variable has no value.
    """
    board = json.loads(dashboard.read_text(encoding="utf-8"))
    panels = board["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = _COLUMNS * _COLUMN_IN, rows * _ROW_IN + _HEAD_IN
    figure = plt.figure(figsize=(width, height), facecolor=_BACK)
    try:
        figure.text(0.008, 1 - 0.27 / height, board["title"], size=15, weight="bold", color=_INK)
        figure.text(0.008, 1 - 0.54 / height, caption, size=9, color=_DIM)
        shown = 0
        for panel in panels:
            place = panel["gridPos"]
            top_in = _HEAD_IN + place["y"] * _ROW_IN
            if panel["type"] == "row":
                where = 1 - (top_in + 0.24) / height
                figure.text(0.008, where, panel["title"], size=11, weight="bold", color=_INK)
                continue
            left, right = place["x"] / _COLUMNS, place["w"] / _COLUMNS
            box = (left + 0.003, 1 - (top_in + place["h"] * _ROW_IN - 0.04) / height, right - 0.006)
            shown += _draw_panel(figure, panel, (*box, (place["h"] * _ROW_IN - 0.08) / height), ask, variables)
        figure.savefig(file, dpi=_DPI, facecolor=_BACK)
    finally:
        plt.close(figure)
    return shown


def filled_in(expr: str, variables: Mapping[str, str]) -> str:
    """An expression as Grafana would send it."""
    missing = {name for name in _VARIABLE.findall(expr) if name not in variables}
    if missing:
        raise ParameterError("variables", f"values for {', '.join(sorted(missing))}", dict(variables))
    return _VARIABLE.sub(lambda found: variables[found[1]], expr)


def named(legend: str, labels: Mapping[str, str]) -> str:
    """A series' legend: ``{{label}}`` is the label's value."""
    name = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
    return name if len(name) <= _MOST_NAME_CHARS else name[: _MOST_NAME_CHARS - 1] + "…"


def with_unit(value: float, unit: str) -> str:
    """A number in its panel's unit."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value:.3g} s" if abs(value) >= 1 or value == 0 else f"{value * 1e3:.3g} ms"
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {letter}{'bit/s' if unit == 'bps' else ''}".rstrip()
    return f"{value:.3g}" + {"bps": " bit/s", "reqps": " /s"}.get(unit, "")


def colour_of(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """Colour of the threshold that a value has reached."""
    reached = [step for step in steps if step["value"] is None or value >= step["value"]]
    return _COLOURS[reached[-1]["color"]] if reached else _INK


def _draw_panel(
    figure: Figure, panel: Any, box: tuple[float, float, float, float], ask: Ask, variables: Mapping[str, str]
) -> bool:
    """Draw frame, title and content; return whether there is any data."""
    frame = figure.add_axes(box, facecolor=_PANEL)
    frame.set(xticks=[], yticks=[])
    for spine in frame.spines.values():
        spine.set_color(_GRID)
    height_in, width_in = box[3] * figure.get_figheight(), box[2] * figure.get_figwidth()
    frame.text(0.1 / width_in, 1 - 0.2 / height_in, panel["title"], size=9, weight="bold", color=_INK)
    kind, unit = panel["type"], panel["fieldConfig"]["defaults"]["unit"]
    series = [
        one
        for target in panel["targets"]
        for one in _series(ask(filled_in(target["expr"], variables)), target["legendFormat"])
    ]
    if kind not in ("timeseries", "stat", "heatmap"):
        raise ParameterError("panels[].type", "timeseries, stat or heatmap", kind)
    if not series:
        frame.text(0.5, 0.45, "No data", size=9, color=_DIM, ha="center", va="center")
        return False
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    if kind == "stat":
        value = series[0].values[-1]
        frame.text(0.5, 0.42, with_unit(value, unit), size=21, color=colour_of(value, steps), ha="center", va="center")
        return True
    inner = figure.add_axes(
        (
            box[0] + 0.62 / figure.get_figwidth(),
            box[1] + 0.62 / figure.get_figheight(),
            box[2] - 0.76 / figure.get_figwidth(),
            box[3] - 0.98 / figure.get_figheight(),
        ),
        facecolor=_PANEL,
    )
    if kind == "heatmap":
        _heat(inner, series)
    else:
        _lines(inner, panel, series, steps, unit)
    inner.tick_params(labelsize=7, colors=_DIM, length=2)
    for spine in inner.spines.values():
        spine.set_color(_GRID)
    inner.set_xlabel("s", size=7, color=_DIM, labelpad=1, loc="right")
    return True


def _lines(axes: Axes, panel: Any, series: Sequence[Series], steps: Sequence[Mapping[str, Any]], unit: str) -> None:
    stacked = panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking", {}).get("mode") == "normal"
    if stacked:
        times = sorted({at_s for one in series for at_s in one.at_s})
        heights = [[dict(zip(one.at_s, one.values, strict=True)).get(at_s, 0.0) for at_s in times] for one in series]
        axes.stackplot(times, heights, labels=[one.name for one in series], alpha=0.55)
    else:
        for one in series:
            single = len(one.at_s) == 1
            axes.plot(one.at_s, one.values, label=one.name, linewidth=_POINTS, marker="." if single else None)
    axes.set_ylim(bottom=min(0.0, *(value for one in series for value in one.values)))
    top = axes.get_ylim()[1]
    for step in steps:
        if step["value"] is not None and step["value"] <= top:
            axes.axhline(step["value"], color=_COLOURS[step["color"]], linestyle="--", linewidth=0.8)
    axes.grid(color=_GRID, linewidth=0.5)
    axes.yaxis.set_major_formatter(lambda value, _: with_unit(value, unit))
    if any(one.name for one in series):
        handles, names = axes.get_legend_handles_labels()
        shown = list(zip(handles, names, strict=True))[:_NAMES_SHOWN]
        axes.legend(
            [handle for handle, _ in shown],
            [name for _, name in shown],
            loc="upper left",
            bbox_to_anchor=(-0.1, -0.12),
            ncols=3,
            fontsize=6.5,
            frameon=False,
            handlelength=1.2,
            columnspacing=1.0,
            labelspacing=0.2,
        )


def _heat(axes: Axes, series: Sequence[Series]) -> None:
    """Draw buckets as a heat map; Prometheus's are cumulative, so lower ones are subtracted."""
    ordered = sorted(series, key=lambda one: float(one.name))
    times = sorted({at_s for one in ordered for at_s in one.at_s})
    found = [dict(zip(one.at_s, one.values, strict=True)) for one in ordered]
    upto = [[0.0] * len(times), *([of.get(at_s, 0.0) for at_s in times] for of in found)]
    cells = [[max(0.0, b - a) for a, b in zip(below, above, strict=True)] for below, above in pairwise(upto)]
    axes.pcolormesh([*times, times[-1] + 1.0], range(len(cells) + 1), cells, cmap="Oranges", shading="flat")
    axes.set_yticks([i + 0.5 for i in range(len(cells))], [f"≤ {one.name}" for one in ordered])


def _series(matrix: Sequence[Mapping[str, Any]], legend: str) -> list[Series]:
    """Series of an answer, without values that are not numbers; series without any are dropped."""
    made = []
    for each in matrix:
        points = [(float(at_s), float(value)) for at_s, value in each["values"]]
        kept = [(at_s, value) for at_s, value in points if isfinite(value)]
        if kept:
            at_s, values = zip(*kept, strict=True)
            made.append(Series(named(legend, each["metric"]), at_s, values))
    return sorted(made, key=lambda one: one.name) if legend else made
