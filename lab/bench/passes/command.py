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
from collections.abc import Sequence
from functools import partial
from itertools import starmap

import torch
from tqdm import tqdm

from cluster.option_types import new_file, positive_int
from cluster.reports.tables import show_table
from lab.bench.harness.record import write_record
from lab.bench.harness.timing import plain_step, seconds_of
from lab.bench.passes.run import BUFFER_MIB, PassPlan, figures, measured, show_passes
from lab.bench.passes.shapes import PassShape
from outrider.contracts.requests import SamplingParams
from outrider.costs.batch_runs import UniquePrompts
from outrider.costs.driver import GenerationDriver
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.kind import cpu_dtype
from outrider.engines.torch.verifier import TorchVerifier
from outrider.models.loading import LoadedModel, load_target

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
