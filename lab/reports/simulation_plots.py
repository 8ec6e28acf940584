"""Plots of the simulator: capacities (WISP Table 2), violations over devices (Figure 7), the plane (Figure 8)."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from lab.reports.plots import COLOURS, describe, figure, save
from lab.simulation.experiment import CapacityFigures, LoadResult
from lab.simulation.published import CAPACITY_32B, SPEEDS_TOKENS_PER_S
from lab.simulation.results import PlanePoint
from lab.simulation.settings import Variant
from lab.simulation.stop_map import STOPPING, DraftEnding, PlaceResult
from outrider.scheduling.attribution import ViolationCause

_MORE_COLOURS = ("#999999", "#332288", "#f0e442", "#882255", "#44aa99", "#ddcc77", "#117733", "#aa4499")
_NAMES = {
    Variant.KV: "fcfs, kept KV",
    Variant.WISP: "wisp",
    Variant.WISP_FAIR: "wisp, fair",
    Variant.SCHEDULER: "slo_aware",
    Variant.CHAINS: "slo_aware + window",
}
_SPREAD = 0.4  # range of ratios around 1 that colours cover
_CAUSES = {None: "in time", ViolationCause.QUEUE: "late, queue", ViolationCause.COMPUTE: "late, compute"}


def plot_capacity(folder: Path, figures: CapacityFigures) -> None:
    if figures.cases:
        _capacities(folder / "capacity.png", figures)
    if figures.loads:
        _violations(folder / "violations.png", figures.loads)
        _plane(folder / "plane.png", figures.loads)


def plot_stops(folder: Path, found: Sequence[PlaceResult]) -> None:
    """Draw ``outrider simulate stops``: capacity of each rule over the best window's, by acceptance and draft speed."""
    cases, promises = list(dict.fromkeys(one.case for one in found)), list(dict.fromkeys(one.promise for one in found))
    columns = [(promise, ending) for promise in promises for ending in STOPPING]
    drawn = figure(2.1 * len(columns) + 1.2, 1.75 * len(cases) + 1.1)
    panels = drawn.subplots(len(cases), len(columns), squeeze=False)
    image = None
    for (row, case), (column, (promise, ending)) in product(enumerate(cases), enumerate(columns)):
        cells = [one for one in found if (one.case, one.promise) == (case, promise)]
        axes = panels[row][column]
        image = _shares(axes, cells, ending) or image
        if row == 0:
            axes.set_title(f"{ending}\npromise {promise:g}", fontsize=9)
        if column == 0:
            axes.set_ylabel(f"{case}\nacceptance", fontsize=9)
        if row == len(cases) - 1:
            axes.set_xlabel("draft tokens/s", fontsize=9)
    if image is not None:
        drawn.colorbar(image, ax=panels, shrink=0.6, extend="both", label="capacity over the best window's")
    drawn.supxlabel("* the target alone serves more devices than the rule   - no window serves anybody", fontsize=8)
    save(drawn, folder / "stops.png")


def _shares(axes: Axes, cells: Sequence[PlaceResult], ending: DraftEnding) -> AxesImage | None:
    """One rule's capacity ratios, for one cost model and promise."""
    acceptances = sorted({one.acceptance for one in cells})
    speeds = sorted({one.draft_tokens_per_s for one in cells})
    axes.set_xticks(range(len(speeds)), [f"{speed:g}" for speed in speeds], fontsize=8)
    axes.set_yticks(range(len(acceptances)), [f"{acceptance:g}" for acceptance in acceptances], fontsize=8)
    if not cells:
        return None
    shares = np.full((len(acceptances), len(speeds)), np.nan)
    for one in cells:
        at = acceptances.index(one.acceptance), speeds.index(one.draft_tokens_per_s)
        share = one.over(ending, (DraftEnding.BEST,))
        shares[at] = np.nan if share is None else share
        more_alone = one.of(DraftEnding.ALONE).devices > one.of(ending).devices
        text = "-" if share is None else f"{share:.2f}{'*' if more_alone else ''}"
        dark = share is not None and abs(share - 1.0) > 0.6 * _SPREAD
        axes.text(at[1], at[0], text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    return axes.imshow(shares, cmap="RdBu", vmin=1.0 - _SPREAD, vmax=1.0 + _SPREAD, origin="lower", aspect="auto")


def _capacities(file: Path, figures: CapacityFigures) -> None:
    case = figures.cases[0]
    speeds = case.speeds_tokens_per_s
    drawn = figure(9.6, 4.4)
    axes = drawn.subplots()
    width = 0.85 / len(case.variants)
    hues = (*COLOURS, *_MORE_COLOURS)
    for index, variant in enumerate(case.variants):
        at = np.arange(len(speeds)) + (index - (len(case.variants) - 1) / 2) * width
        counts = [figures.devices(case, variant, speed) for speed in speeds]
        axes.bar(at, counts, width, color=hues[index], label=variant.value)
        if variant.value in CAPACITY_32B:
            published = [CAPACITY_32B[variant.value][SPEEDS_TOKENS_PER_S.index(speed)] for speed in speeds]
            label = "published" if variant is Variant.SLED else None
            axes.plot(at, published, "k_", markersize=11, markeredgewidth=2, label=label)
    axes.set_xticks(range(len(speeds)), [f"{speed:g} tokens/s" for speed in speeds])
    describe(axes, f"Devices served at the promised speed, costs of {case.name}", "", "devices")
    drawn.legend(loc="outside lower center", ncols=5, fontsize=8)
    save(drawn, file)


def _violations(file: Path, loads: Sequence[LoadResult]) -> None:
    drawn = figure(9.6, 6.4)
    grid = drawn.subplots(2, 2, sharex=True, sharey=True)
    for index, (axes, speed) in enumerate(zip(grid.flat, SPEEDS_TOKENS_PER_S, strict=True)):
        for (variant, name), colour in zip(_NAMES.items(), COLOURS, strict=False):
            runs = [load for load in loads if load.variant is variant]
            counts = [load.devices for load in runs]
            responses = [load.by_class[index].response_violation_rate for load in runs]
            rounds = [load.by_class[index].round_violation_rate for load in runs]
            axes.plot(counts, responses, color=colour, marker="o", markersize=3, label=name)
            axes.plot(counts, rounds, color=colour, linestyle=":", linewidth=1)
        describe(axes, f"{speed:g} tokens/s", "devices, a quarter in each class" if index > 1 else "", "share late")
    drawn.suptitle(
        "Responses (solid) and rounds (dotted) slower than promised, mixed classes, no memory limit", fontsize=11
    )
    drawn.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save(drawn, file)


def _plane(file: Path, loads: Sequence[LoadResult]) -> None:
    """Every policy at the load at which first come first served starts to fail over half of some class's responses."""
    fcfs = [load for load in loads if load.variant is Variant.KV]
    failing = [load for load in fcfs if max(one.response_violation_rate for one in load.by_class) > 0.5]
    at = (failing or fcfs)[0].devices
    drawn = figure(4.2 * len(_NAMES), 3.9)
    row = drawn.subplots(1, len(_NAMES), sharex=True, sharey=True)
    for axes, (variant, name) in zip(row, _NAMES.items(), strict=True):
        load = next(load for load in loads if load.variant is variant and load.devices == at)
        _plot_plane(axes, load.plane, f"{name}, {at} devices")
    save(drawn, file)


def _plot_plane(axes: Axes, plane: Sequence[PlanePoint], title: str) -> None:
    """Rounds by waiting and verification time, coloured by what made them late (WISP Figure 8)."""
    for (cause, label), colour in zip(_CAUSES.items(), ("#999999", COLOURS[0], COLOURS[1]), strict=True):
        points = [point for point in plane if point.cause is cause]
        queue_ms = [1e3 * point.queue_s for point in points]
        verify_ms = [1e3 * point.verify_s for point in points]
        share = len(points) / max(1, len(plane))
        axes.plot(queue_ms, verify_ms, ".", markersize=3, color=colour, label=f"{label} ({100 * share:.0f} %)")
    describe(axes, title, "queueing (ms)", "verification (ms)")
    axes.legend(fontsize=7, loc="upper right")
