"""``outrider bench engine``: cost of a pass of our engine, against what is possible.

``passes``: passes over some rows of some generations behind a prefix, by the torch engine's model as served. They are
compared with the memory bound (weights and KV read once, at the speed at which this process sums a float32 buffer far
larger than the caches, the best of five readings), and with the fastest inexact computation of the same (rows in any
number, plain layers): the tax.
``rounds``: verification of 1 and 8 generations by the whole engine, against plain calls of the transformers model.

Arms take turns. With one thread times are CPU times, which other processes do not lengthen; with several, wall times.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from statistics import median

import torch
from tqdm import tqdm

from cluster.option_types import new_file, positive_int
from cluster.reports.tables import show_table
from lab.bench.harness.record import write_record
from lab.bench.harness.statistics import Spread, rotated, spread_of
from lab.bench.harness.timing import plain_step, seconds_of
from lab.bench.passes.shapes import EXACT, INEXACT, Make, ModelBytes, PassShape, Pool, served, weight_bytes
from outrider.contracts.requests import SamplingParams
from outrider.costs.batch_runs import GenerationDriver, UniquePrompts
from outrider.engines.forward_model import ForwardModel, MaskedModel
from outrider.engines.limits import EngineLimits
from outrider.engines.segments import Segment
from outrider.engines.torch.fused.model import can_fuse
from outrider.engines.torch.kind import cpu_dtype
from outrider.engines.torch.linears import can_pack
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.verifier import TorchVerifier
from outrider.models.loading import LoadedModel, load_target

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


_PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.8, seed=1),
    "top-p": SamplingParams(temperature=0.8, top_p=0.9, seed=1),
}


def measured_rounds(args: argparse.Namespace) -> dict[str, object]:
    # Two copies of the model: the engine replaces the attention of its own.
    bare = load_target(args.target, dtype=args.dtype, device=args.device)
    ours = load_target(args.target, dtype=args.dtype, device=args.device)
    engine = TorchVerifier(ours, EngineLimits(kv_budget_bytes=2 * 2**30))
    rows = [
        (generations, sampling, *_medians_ms(bare, engine, params, generations, args))
        for generations in args.generations
        for sampling, params in _PARAMS.items()
    ]
    title = (
        f"{bare.name} {args.dtype} on {args.device}, {args.threads} thread(s), K={args.window}, prefix {args.prefix}"
    )
    shown = [(*row, f"{bare_ms:.1f}", f"{our_ms:.1f}", f"{our_ms / bare_ms:.2f}") for *row, bare_ms, our_ms in rows]
    show_table(title, ("generations", "sampling", "bare ms", "engine ms", "ratio"), shown)
    names = ("generations", "sampling", "bare_ms", "engine_ms")
    return {"rounds": [dict(zip(names, row, strict=True)) for row in rows]}


def _medians_ms(
    bare: LoadedModel, engine: TorchVerifier, params: SamplingParams, generations: int, args: argparse.Namespace
) -> tuple[float, float]:
    """Medians of the bare call and of a round, alternating after a warm-up of each."""
    driver, drafts = _warm(engine, bare.vocab_size, params, generations, args)
    step = plain_step(bare.model, generations, args.prefix, args.window + 1)
    times = [(seconds_of(step), seconds_of(partial(driver.round, drafts))) for _ in range(args.repeats + 1)][1:]
    driver.close(tuple(driver.tokens))
    bare_ms, our_ms = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return bare_ms, our_ms


def _warm(
    engine: TorchVerifier, vocab_size: int, params: SamplingParams, generations: int, args: argparse.Namespace
) -> tuple[GenerationDriver, dict[str, tuple[int, ...]]]:
    """Generations with computed prompts, and each one's draft for every round."""
    prompts, driver = UniquePrompts(vocab_size, seed=0), GenerationDriver(engine, params)
    for index in range(generations):
        driver.open(f"warm {index}", prompts.take(args.prefix))
    driver.round(dict.fromkeys(driver.tokens, ()))
    return driver, {name: prompts.draft(args.window) for name in driver.tokens}


_SHAPES = ((1, 1), (1, 4), (4, 1), (4, 4), (1, 16), (16, 1), (1, 32), (32, 1))  # rows and generations
_PARTS = ("passes", "rounds")


def main(argv: Sequence[str]) -> None:
    args = _arguments(argv)
    torch.set_num_threads(args.threads)
    content: dict[str, object] = {}
    if "passes" in args.parts:
        content |= _passes(args)
    if "rounds" in args.parts:
        content |= measured_rounds(args)
    if args.json is not None:
        write_record(args.json, args, content)


def _passes(args: argparse.Namespace) -> dict[str, object]:
    shapes = tuple(starmap(PassShape, _SHAPES))
    plan = PassPlan(args.target, args.dtype, args.threads, shapes, args.prefix, args.repeats, args.passes)
    with tqdm(desc="passes", disable=None) as bar:

        def on_cell(arm: str) -> None:
            bar.set_postfix_str(arm)
            bar.update()

        found = measured(plan, on_cell)
    clock = "CPU ms" if args.threads == 1 else "wall ms"
    speeds = [speed / 1e9 for speed in found.bytes_per_s]
    title = (
        f"{args.target} {args.dtype}, {args.threads} thread(s), {clock}; memory reads {min(speeds):.1f}-"
        f"{max(speeds):.1f} GB/s (float32 sum of {BUFFER_MIB} MiB); weights {found.sizes.weights / 1e6:.0f} MB, "
        f"KV {found.sizes.kv_token} bytes a token"
    )
    passes = figures(found)
    show_passes(f"a pass behind {args.prefix} tokens of {title}", passes)
    seconds = {arm: {str(shape): times for shape, times in own.items()} for arm, own in found.seconds.items()}
    return {"bytes_per_s": found.bytes_per_s, "seconds": seconds, "passes": passes}


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="outrider bench engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=_PARTS, default=list(_PARTS), help="what is measured (default: all)")
    add("--target", default="embedded", help="the embedded one, or a folder in Hugging Face format")
    add("--dtype", default="float32", choices=["auto", "float32", "bfloat16"])
    add("--threads", type=positive_int, default=1)
    add("--prefix", type=positive_int, default=500, help="tokens behind which is computed (default: %(default)s)")
    add("--repeats", type=positive_int, default=15, help="turns of all arms (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    add("--passes", type=positive_int, default=3, help="of an arm in a turn (default: %(default)s)")
    rounds = parser.add_argument_group("rounds").add_argument
    rounds("--device", default="cpu")
    rounds("--generations", type=positive_int, nargs="+", default=[1, 8])
    rounds("--window", type=positive_int, default=8)
    args = parser.parse_args(argv)
    if args.dtype == "auto":
        args.dtype = cpu_dtype()
    return args
