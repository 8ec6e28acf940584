"""Measures passes of all arms in turn, and reading of memory by the same clock; figures and table of these."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from cluster.reports.tables import show_table
from lab.bench.harness.statistics import Spread, rotated, spread_of
from lab.bench.passes.shapes import EXACT, INEXACT, Make, ModelBytes, PassShape, Pool, served, weight_bytes
from outrider.engines.forward_model import ForwardModel, MaskedModel
from outrider.engines.segments import Segment
from outrider.engines.torch.fused.model import can_fuse
from outrider.engines.torch.linears import can_pack
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.models.loading import load_target

BUFFER_MIB = 512  # far larger than any cache
_READINGS, _BLOCK_TOKENS = 5, 16


@dataclass(frozen=True, slots=True)
class PassPlan:
    target: str
    dtype: str
    threads: int
    shapes: tuple[PassShape, ...]
    behind: int  # resident tokens of each sequence
    turns: int  # of all arms
    passes: int  # of an arm in a turn; the median of their times counts
    buffer_mib: int = BUFFER_MIB  # read to measure memory bandwidth

    def pool(self) -> Pool:
        longest = self.behind + max(shape.rows for shape in self.shapes)
        return Pool(_BLOCK_TOKENS, longest, max(shape.generations for shape in self.shapes))


@dataclass(frozen=True, slots=True)
class Measured:
    behind: int
    sizes: ModelBytes
    seconds: Mapping[str, Mapping[PassShape, list[float]]]  # of a pass by arm and shape
    bytes_per_s: list[float]  # of reading memory


def measured(plan: PassPlan, on_cell: Callable[[str], object]) -> Measured:
    """Run the plan; ``on_cell`` gets the arm after each of its measurements."""
    pool = plan.pool()
    arms, sizes = _arms(plan, pool)
    buffer = torch.ones(plan.buffer_mib * 2**20 // 4)
    seconds: dict[str, dict[PassShape, list[float]]] = {name: {} for name in arms}
    bytes_per_s: list[float] = []
    for turn in range(plan.turns):
        bytes_per_s.append(_bytes_per_s(buffer, plan.threads))
        for shape in plan.shapes:
            segments = pool.segments(shape, plan.behind)
            for name in rotated(list(arms), turn):
                found = _pass_seconds(arms[name], segments, plan.passes, plan.threads)
                seconds[name].setdefault(shape, []).append(median(found))
                on_cell(name)
    return Measured(plan.behind, sizes, seconds, bytes_per_s)


def _arms(plan: PassPlan, pool: Pool) -> tuple[dict[str, MaskedModel], ModelBytes]:
    """The served model, inexact ones where exactness changes anything, and the bytes that they read."""
    kinds: dict[str, Make] = {EXACT: served}
    loaded = load_target(plan.target, dtype=plan.dtype, device="cpu")
    sizes = ModelBytes(weight_bytes(loaded.model), kv_bytes_per_token(loaded.model))
    if can_pack(loaded.model) and can_fuse(loaded.model):
        kinds |= INEXACT
    arms = dict[str, MaskedModel]()
    for name, kind in kinds.items():
        model = loaded.model if name == EXACT else load_target(plan.target, dtype=plan.dtype, device="cpu").model
        arms[name] = kind(model, pool.blocks, pool.block_tokens)
    return arms, sizes


def _pass_seconds(model: ForwardModel, segments: Sequence[Segment], passes: int, threads: int) -> list[float]:
    model.forward(segments)
    return [_seconds_of(lambda: model.forward(segments), threads) for _ in range(passes)]


def _bytes_per_s(buffer: torch.Tensor, threads: int) -> float:
    """Bandwidth of summing a buffer: of the fastest of a few readings, as concurrent readers slow some down."""
    return buffer.nbytes / min(_seconds_of(buffer.sum, threads) for _ in range(_READINGS))


def _seconds_of(call: Callable[[], object], threads: int) -> float:
    """CPU time for a single thread, which other processes do not lengthen; wall time for several."""
    clock_s = time.process_time if threads == 1 else time.perf_counter
    began_at_s = clock_s()
    call()
    return clock_s() - began_at_s


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
