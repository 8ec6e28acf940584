"""``outrider bench engine``: cost of a pass of our engine, against what is possible.

``passes``: passes over some rows of some generations behind a prefix, by the torch engine's model as served. They are
compared with the memory bound (weights and KV read once, at the speed at which this process sums a float32 buffer far
larger than the caches, the best of five readings), and with the fastest inexact computation of the same (rows in any
number, plain layers): the tax.
``rounds``: verification of 1 and 8 generations by the whole engine, against plain calls of the transformers model.

Arms take turns. With one thread times are CPU times, which other processes do not lengthen; with several, wall times.
"""

import argparse
from collections.abc import Sequence
from itertools import starmap

import torch
from tqdm import tqdm

from cluster.option_types import new_file, positive_int
from lab.bench.harness.record import write_record
from lab.bench.passes.rounds import measured_rounds
from lab.bench.passes.run import BUFFER_MIB, PassPlan, figures, measured, show_passes
from lab.bench.passes.shapes import PassShape
from outrider.engines.torch.kind import cpu_dtype

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
