"""``outrider bench bookkeeping``: what everything but the model costs.

An engine that only sleeps (10 ms a step, and 0.02 ms for each of its sequences) in a process of its own; in front of it
a coordinator whose chunks are thrown away. Reported are tokens per second beside those of the engine's own loop, and
the CPU time of the part's process.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import ray

from bench.bookkeeping import coordinator
from bench.bookkeeping.figures import show
from bench.harness.record import write_record


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its table."""
    parser = argparse.ArgumentParser(prog="outrider bench bookkeeping", description=__doc__)
    add = parser.add_argument
    add("--sequences", type=int, default=256, help="responses at once (default: %(default)s)")
    add("--tokens", type=int, default=200, help="of each response (default: %(default)s)")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
    try:
        found = [coordinator.measured(args.sequences, args.tokens)]
    finally:
        ray.shutdown()
    show(found)
    if args.json is not None:
        write_record(args.json, args, {"bookkeeping": found})
