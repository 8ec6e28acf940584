"""``outrider bench fleet``: cost of the control plane at scale.

The fleet's own code runs in this process over drafters that are plain objects; coordinators only send calls. Reported
is the fleet process's CPU time for each kind of call (unpickling, executing, pickling the answer), from a crash until
all leases are known again, and for its background work. Ray's own part of a call comes on top: some 0.7 ms at each end;
``--through-ray`` measures it, with the fleet as an actor on its own cluster.
"""

import argparse
import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from cluster.reports.tables import percent, show_table
from lab.bench.fleet.measure import Effort, Figures, Size, measured
from lab.bench.fleet.through_ray import Paced, through_ray
from lab.bench.harness.record import write_record


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its tables."""
    parser = argparse.ArgumentParser(prog="outrider bench fleet", description=__doc__)
    add = parser.add_argument
    add("--drafters", type=int, nargs="+", default=[100, 1000, 10_000], help="sizes (default: %(default)s)")
    add("--streams", type=int, default=10, help="for each drafter (default: %(default)s)")
    add("--places", type=int, default=12, help="for streams at each drafter (default: %(default)s)")
    add("--coordinator-streams", type=int, default=100, help="at each coordinator (default: %(default)s)")
    add("--seconds", type=float, default=3.0, help="for each kind of call (default: %(default)s)")
    add("--watch-s", type=float, default=10.0, help="without any call (default: %(default)s)")
    add("--traffic-s", type=float, default=10.0, help="virtual seconds of traffic (default: %(default)s)")
    add("--warmup-s", type=float, default=30.0, help="virtual, before them: all know all (default: %(default)s)")
    add("--response-s", type=float, default=20.0, help="mean length of a response (default: %(default)s)")
    add("--ray-us", type=float, default=700.0, help="Ray's own CPU time of a call, at its end (default: %(default)s)")
    add("--through-ray", type=int, default=0, metavar="CALLS", help="measure this many calls through Ray as well")
    add("--per-s", type=float, default=333.0, help="of these (default: %(default)s)")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    if args.streams >= args.places:
        parser.error(f"--streams needs to be below --places ({args.places}), found {args.streams}")
    logging.disable(logging.WARNING)  # one for each response that its drafters still hold after its end
    effort = Effort(args.seconds, args.watch_s, args.warmup_s, args.traffic_s, args.response_s)
    found = []
    for drafters in args.drafters:
        size = Size(drafters, drafters * args.streams, args.coordinator_streams, args.places)
        found.append(asyncio.run(measured(size, effort)))
        show(found[-1], 1e-6 * args.ray_us)
    if args.through_ray:
        paced = through_ray(size, args.per_s, args.through_ray)
        show_paced(f"Through Ray, {size.drafters:,} drafters", paced)
    if args.json is not None:
        write_record(args.json, args, {"sizes": found})


def show_paced(title: str, paced: Sequence[Paced]) -> None:
    """Print calls through Ray as a table."""
    rows = [(one.what, f"{one.calls_per_s:,.0f}", f"{1e6 * one.cpu_s:,.0f}", percent(one.cpu_share)) for one in paced]
    show_table(title, ("call", "a second", "us of CPU", "of a core"), rows)


def show(found: Figures, ray_s: float) -> None:
    """Print one size as tables; Ray takes ``ray_s`` of each call."""
    size, idle = found.size, percent(found.background_cpu_share)
    title = f"{size.drafters:,} drafters, {size.streams:,} streams at {size.coordinators:,} coordinators"
    show_table(
        title,
        ("call", "us of CPU", "bytes sent", "answered"),
        [(one.what, f"{one.cpu_us:,.0f}", f"{one.sent_bytes:,}", f"{one.answered_bytes:,}") for one in found.costs],
        "\n".join(
            (
                *(f"{one.what}: {one.cpu_s:.2f} s of CPU ({one.wall_s:.2f} s)" for one in found.starts),
                f"by itself: {found.asked_per_s:,.0f} drafters asked a second, {idle} of a core",
            )
        ),
    )
    kinds = ("heartbeat", "lease", "release")
    show_table(
        "Responses that come and go",
        (
            "leases",
            *(f"{kind}s/s" for kind in kinds),
            "bytes a heartbeat",
            "own CPU",
            "with Ray's",
            "without a drafter",
        ),
        [
            (
                *(how, *(f"{flow.calls.get(kind, 0.0):,.0f}" for kind in kinds), f"{flow.beat_bytes:,}"),
                *(percent(flow.cpu_share), percent(flow.cpu_share + ray_s * flow.calls_per_s), percent(flow.unplaced)),
            )
            for how, flow in (("one by one", found.one_by_one), ("in bulk", found.in_bulk))
        ],
    )
