"""Figures of passes and their tables; the lower bound is reading weights and KV once. Pure, printing aside."""

from collections.abc import Mapping, Sequence
from statistics import median

from cluster.reports.tables import show_table
from lab.bench.harness.samples import Spread, spread_of
from lab.bench.passes.run import Measured
from lab.bench.passes.shapes import PassShape
from lab.bench.passes.torch_models import EXACT, INEXACT


def figures(measured: Measured) -> list[dict[str, object]]:
    """Figures of each shape; what was not measured is None.

    ``over_bound``: of the torch engine's pass over reading weights and KV once; ``tax``: over the fastest inexact
    computation of the same.
    """
    return [_figures(measured, shape) for shape in measured.seconds[EXACT]]


def _figures(measured: Measured, shape: PassShape) -> dict[str, object]:
    mine = measured.seconds[EXACT][shape]
    size = measured.sizes.of_pass(shape, measured.behind)
    free = fastest(measured.seconds, shape)
    return {
        "shape": str(shape),
        "rows": shape.total_rows,
        "bytes": size,
        "ms": _ms(mine),
        "bound_ms": _ms([size / speed for speed in measured.bytes_per_s]),
        "over_bound": over_bound(mine, size, measured.bytes_per_s),
        "fastest_inexact": free,
        "inexact_ms": None if free is None else _ms(measured.seconds[free][shape]),
        "tax": None if free is None else ratios(mine, measured.seconds[free][shape]),
    }


def fastest(seconds: Mapping[str, Mapping[PassShape, Sequence[float]]], shape: PassShape) -> str | None:
    known = [name for name in INEXACT if name in seconds]
    return min(known, key=lambda name: median(seconds[name][shape]), default=None)


def ratios(tops: Sequence[float], bottoms: Sequence[float]) -> Spread:
    """Ratios of values measured in the same turn: median, minimum, maximum."""
    return spread_of([top / bottom for top, bottom in zip(tops, bottoms, strict=True)])


def over_bound(seconds: Sequence[float], size_bytes: int, bytes_per_s: Sequence[float]) -> Spread:
    """Times of a pass over those of reading ``size_bytes``, at the bandwidth of the same turn."""
    return ratios(seconds, [size_bytes / speed for speed in bytes_per_s])


def show_passes(title: str, found: Sequence[Mapping[str, object]]) -> None:
    columns = {
        "rows x generations": "shape",
        "ms": "ms",
        "bound ms": "bound_ms",
        "over bound": "over_bound",
        "inexact ms": "inexact_ms",
        "tax": "tax",
        "by": "fastest_inexact",
    }
    rows = [[_shown(one[name]) for name in columns.values()] for one in found]
    show_table(title, list(columns), rows, "medians [smallest-largest] over turns; ratios are of the same turn")


def _ms(seconds: Sequence[float]) -> Spread:
    return spread_of([1e3 * one for one in seconds])


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return value.shown(2) if isinstance(value, Spread) else str(value)
