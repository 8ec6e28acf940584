"""Mutated messages and bodies: ``python -m tests.chaos.mutated --messages 100000 --bodies 2000``; status 1 if any harm.

Half of the messages meet the two ends of a link in this process, some the readers of replies, a drafter's host, a
verifier over a real engine and a gateway, the others devices that serve; the bodies meet a service, beside greedy
streams whose answers are known. So do giants: devices that answer with 64 MiB, or lists of up to ten million names.
"""

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_cache_path

from lab.bench.harness.record import write_record
from tests.chaos import mutated_live, mutated_sizes
from tests.chaos.links import die_with_parent
from tests.chaos.mutated_frames import calls_and_frames
from tests.chaos.mutated_gateway import gateways
from tests.chaos.mutated_messages import Counts, calls, orders_and_answers, replies
from tests.chaos.processes import ACTORS, gone, pids_of
from tests.chaos.references import Alone
from tests.chaos.schedules import Victim
from tests.chaos.services import Layout, config_of
from tests.cluster.served import eventually, started

_BESIDE, _BESIDE_TOKENS = 2, 24
_UP_WITHIN_S = 180.0
_SHARES = {  # devices that serve: the rest
    "the ends of a link": 0.5,
    "readers of replies": 0.1,
    "a drafter's host and its stream": 0.05,
    "a verifier": 0.05,
    "gateways": 0.05,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Send everything, and tell what became of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutated", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bodies", type=int, default=2_000)
    parser.add_argument("--giants", type=int, default=12, help="replies of sizes no honest device has, at a service")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, default=None, help="file for what became of everything, as JSON")
    parser.add_argument("--references", type=Path, default=user_cache_path("outrider") / "chaos-references.json")
    args = parser.parse_args(argv)
    die_with_parent()
    logging.getLogger("actors.verifier.actor").setLevel(logging.CRITICAL)  # it tells of each opening that it refuses
    shares = {name: int(args.messages * share) for name, share in _SHARES.items()}
    tries = zip(shares.items(), (orders_and_answers, replies, calls_and_frames, calls, gateways), strict=True)
    inside = {name: _told(name, tried(args.seed, number)) for (name, number), tried in tries}
    left = args.messages - sum(counts.tried for counts in inside.values())
    live = _live(args, max(left, 0))
    wrong = mutated_sizes.sizes() + [line for tried in live.values() for line in tried.wrong]
    print(f"sizes of replies: {len(mutated_sizes.CASES)}", flush=True)
    for name, tried in live.items():
        print(f"{name}: {tried.number}: {dict(tried.kinds)}")
    print("\n".join(wrong) or "nobody was harmed", flush=True)
    if args.report is not None:
        content = {
            "inside": {
                name: {"tried": counts.tried, "understood": counts.understood} for name, counts in inside.items()
            },
            "live": {name: {"tried": tried.number, "kinds": dict(tried.kinds)} for name, tried in live.items()},
            "wrong": wrong,
        }
        write_record(args.report, args, content)
    return int(bool(wrong))


def _told(name: str, counts: Counts) -> Counts:
    print(f"{name}: {counts.tried} mutated messages, {counts.understood} of them sound by chance", flush=True)
    return counts


def _live(args: argparse.Namespace, messages: int) -> dict[str, mutated_live.Tried]:
    alone = Alone(args.references, _BESIDE_TOKENS)
    config = config_of(Layout.ONE_DOOR, Path(tempfile.mkdtemp(prefix="outrider-mutated-")))
    with started(config) as service:
        eventually(lambda: len(service.drafters("ready")) == config.drafter_count, _UP_WITHIN_S)
        before = {pid for victim in ACTORS for pid in pids_of(service, victim)}
        drafters = set(pids_of(service, Victim.DRAFTER))  # which giants take the place of
        with mutated_live.beside(service.url, alone, _BESIDE, _BESIDE_TOKENS) as streams:
            found = {
                "devices that serve": mutated_live.orders(service, args.seed, messages),
                "bodies": mutated_live.bodies(service.url, args.seed, args.bodies),
            }
            lost = before - {pid for victim in ACTORS for pid in pids_of(service, victim)}
            found["giants"] = mutated_sizes.live(service, args.giants)
            found["streams beside"] = streams()
        lost |= {pid for pid in before if gone(pid) and pid not in drafters}
        if lost:
            found["bodies"].wrong.append(f"processes {sorted(lost)} are gone")
        service.check_released()
    return found


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # as in tests.chaos
