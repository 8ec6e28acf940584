"""``outrider bench bookkeeping``: overhead of everything but the model.

The *coordinator* drives an engine that only sleeps (10 ms a step, and 0.02 ms per sequence) in a process of its own,
and discards its chunks. The *ingress* reads a recording of such a coordinator, and its clients discard their responses.
For both: tokens per second beside those of the engine's own loop, and CPU time of the part's process. The *verifier*
has a model that computes nothing: CPU time per block by the length of its context. Each
figure is the median of several runs.
"""

import argparse
from collections.abc import Sequence

import ray

from cluster.option_types import new_file, positive_int
from lab.bench.bookkeeping import coordinator, ingress, verifier
from lab.bench.bookkeeping.figures import BlockCost, Flow, show_costs, show_flows
from lab.bench.harness.record import write_record

_PARTS = ("coordinator", "ingress", "verifier")


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="outrider bench bookkeeping", description=__doc__)
    add = parser.add_argument
    add("--parts", nargs="+", choices=_PARTS, default=_PARTS, metavar="PART", help="of %(choices)s (default: all)")
    add("--sequences", type=positive_int, default=256, help="responses at once (default: %(default)s)")
    add("--tokens", type=positive_int, default=200, help="of each response (default: %(default)s)")
    add(
        "--contexts",
        type=positive_int,
        nargs="+",
        default=[500, 32_000],
        help="of the verifier's blocks (default: %(default)s)",
    )
    add("--blocks", type=positive_int, default=64, help="in each of its steps (default: %(default)s)")
    add("--steps", type=positive_int, default=100, help="in each of its runs (default: %(default)s)")
    add("--repeats", type=positive_int, default=3, help="runs of each part (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    flows, costs = list[list[Flow]](), list[list[BlockCost]]()
    if "coordinator" in args.parts:
        ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
        try:
            flows.append(coordinator.measured(args.sequences, args.tokens, args.repeats))
        finally:
            ray.shutdown()
    if "ingress" in args.parts:
        flows += ingress.measured(args.sequences, args.tokens, args.repeats)
    if "verifier" in args.parts:
        for context_tokens in args.contexts:
            costs += verifier.measured(context_tokens, args.blocks, args.steps, args.repeats)
    if flows:
        show_flows(flows)
    if costs:
        show_costs(costs)
    if args.json is not None:
        write_record(args.json, args, {"flows": flows, "costs": costs})
