"""Figures of passes and their tables; the lower bound is reading weights and KV once. Pure, printing aside."""

from collections.abc import Mapping, Sequence
from statistics import median

from cluster.reports.tables import show_table
from lab.bench.harness.samples import Spread, spread_of
from lab.bench.passes.run import Measured, Point
from lab.bench.passes.torch_models import EXACT, INEXACT


def figures(measured: Measured, points: Sequence[Point]) -> list[dict[str, object]]:
    """Figures of each point; what was not measured is None.

    ``over_bound``: of the torch engine's pass over reading weights and KV once; ``tax``: over the fastest inexact
    computation of the same.
    """
    return [_point_figures(measured, point) for point in points]


def _point_figures(measured: Measured, point: Point) -> dict[str, object]:
    mine = measured.seconds[EXACT][point]
    size = measured.sizes.of_pass(point.shape, point.behind)
    free = fastest(measured.seconds, point)
    return {
        "point": str(point),
        "rows": point.shape.total_rows,
        "bytes": size,
        "ms": _ms(mine),
        "bound_ms": _ms([size / speed for speed in measured.bytes_per_s]),
        "over_bound": over_bound(mine, size, measured.bytes_per_s),
        "fastest_inexact": free,
        "inexact_ms": None if free is None else _ms(measured.seconds[free][point]),
        "tax": None if free is None else ratios(mine, measured.seconds[free][point]),
    }


def fastest(seconds: Mapping[str, Mapping[Point, Sequence[float]]], point: Point) -> str | None:
    """The fastest inexact arm, by its median."""
    known = [name for name in INEXACT if name in seconds]
    return min(known, key=lambda name: median(seconds[name][point]), default=None)


def context_figures(measured: Measured, short: Point, long: Point) -> list[dict[str, object]]:
    """By arm: extra time of a row behind a long context over that behind a short one, against reading that much KV."""
    size = measured.sizes.of_kv(long.behind - short.behind)
    return [
        {
            "arm": arm,
            "short_ms": _ms(found[short]),
            "long_ms": _ms(found[long]),
            "kv_ms": _ms([size / speed for speed in measured.bytes_per_s]),
            "over_kv": over_bound(
                [many_s - few_s for many_s, few_s in zip(found[long], found[short], strict=True)],
                size,
                measured.bytes_per_s,
            ),
        }
        for arm, found in measured.seconds.items()
    ]


def ratios(tops: Sequence[float], bottoms: Sequence[float]) -> Spread:
    """Ratios of values measured in the same turn: median, minimum, maximum."""
    return spread_of([top / bottom for top, bottom in zip(tops, bottoms, strict=True)])


def over_bound(seconds: Sequence[float], size_bytes: int, bytes_per_s: Sequence[float]) -> Spread:
    """Times of a pass over those of reading ``size_bytes``, at the bandwidth of the same turn."""
    return ratios(seconds, [size_bytes / speed for speed in bytes_per_s])


def show_passes(title: str, found: Sequence[Mapping[str, object]]) -> None:
    """Print each point with its two ratios."""
    columns = {
        "rows x generations": "point",
        "ms": "ms",
        "bound ms": "bound_ms",
        "over bound": "over_bound",
        "inexact ms": "inexact_ms",
        "tax": "tax",
        "by": "fastest_inexact",
    }
    rows = [[_shown(one[name]) for name in columns.values()] for one in found]
    show_table(title, list(columns), rows, "medians [smallest-largest] over turns; ratios are of the same turn")


def show_context(title: str, found: Sequence[Mapping[str, object]]) -> None:
    """Print each arm's attention to a long context."""
    columns = {
        "arm": "arm",
        "short ms": "short_ms",
        "long ms": "long_ms",
        "KV read ms": "kv_ms",
        "difference over KV read": "over_kv",
    }
    show_table(title, list(columns), [[_shown(one[name]) for name in columns.values()] for one in found])


def _ms(seconds: Sequence[float]) -> Spread:
    return spread_of([1e3 * one for one in seconds])


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return value.shown(2) if isinstance(value, Spread) else str(value)
