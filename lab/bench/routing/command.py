"""``outrider bench routing``: rules that choose a verifier, compared with the product's, on real verifiers.

Users hold conversations, each turn of which sends everything before it, behind one of several system prompts. A service
is started for each rule and pass, without devices, as drafting does not affect routing. All rules of a pass get the
same requests, no two passes do. Figures are what clients received (``usage``) and measured, and what coordinators
reported to the fleet.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from cluster.options import add_config_options, read_config
from cluster.reports.tables import percent, show_table
from lab.bench.harness.options import positive_int
from lab.bench.harness.record import write_record
from lab.bench.harness.samples import rotated
from lab.bench.routing.conversations import Traffic
from lab.bench.routing.figures import PERCENTILES, Figures, Run, figures
from lab.bench.routing.service import RULES, Asked, Load, measured
from outrider.config.schema import Config


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its table."""
    args = _parser().parse_args(argv)
    config = read_config(args)
    config = replace(config, drafters=(), verifiers=replace(config.verifiers, count=args.verifiers, autoscaling=None))
    traffic = Traffic(args.turns, args.systems, args.system_words)
    asked = Asked(traffic, tuple(args.loads), args.tokens, args.seed)
    runs: list[Run] = []
    for turn in range(args.passes):
        for rule in rotated(args.rules, turn):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # one cluster a process (Ray forks)
                runs += pool.submit(measured, config, rule, asked, turn).result()
            _tell(runs[-len(asked.loads) :])
            if args.json is not None:  # service by service: an interrupt keeps what was measured
                write_record(args.json, args, {"figures": figures(runs), "runs": runs})
    show(figures(runs), config)


def _tell(runs: Sequence[Run]) -> None:
    """Print each run in a line."""
    for run in runs:
        resumed = f", resumed {run.resumed}" if run.resumed else ""
        failed = f", failed {run.failures} ({run.failure})" if run.failures else ""
        work = ", ".join(f"{work.tokens} tokens in {work.busy_s:.1f} s" for work in run.work.values())
        print(f"{run.turn} {run.rule}, {run.users} users: {run.elapsed_s:.1f} s{failed}{resumed}; {work}", flush=True)


def show(found: Sequence[Figures], config: Config) -> None:
    header = (
        *("users, rule", "responses", "found", "tokens, busiest / mean", "busy s, busiest / mean"),
        *(f"TTFT p{share} ms" for share in PERCENTILES),
        *("tokens/s", "failures", "resumed"),
    )
    rows = [
        (
            f"{one.users}, {one.rule}",
            one.responses,
            percent(one.found),
            one.balance.shown(2),
            one.busy_balance.shown(2),
            *(f"{1e3 * one.ttft_s[share]:.0f}" if one.ttft_s else "" for share in PERCENTILES),
            one.tokens_per_s.shown(1),
            one.failures,
            one.resumed,
        )
        for one in found
    ]
    show_table(f"Routing before {config.verifiers.count} verifiers", header, rows)


def _load(text: str) -> Load:
    """``USERS:CONVERSATIONS``."""
    users, _, each = text.partition(":")
    try:
        return Load(positive_int(users), positive_int(each))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"needs USERS:CONVERSATIONS, two integers, found {text!r}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench routing", description=__doc__)
    add_config_options(parser)
    add = parser.add_argument
    add("--rules", nargs="+", choices=tuple(RULES), default=list(RULES), help="(default: all)")
    add("--verifiers", type=positive_int, default=3, help="(default: %(default)s)")
    add(
        "--loads",
        nargs="+",
        type=_load,
        metavar="USERS:CONVERSATIONS",
        default=[Load(3, 4), Load(12, 2)],
        help="users at once, and conversations of each (default: 3:4 12:2)",
    )
    add("--turns", type=positive_int, default=4, help="of a conversation (default: %(default)s)")
    add("--systems", type=positive_int, default=6, help="different system prompts (default: %(default)s)")
    add("--system-words", type=positive_int, default=100, help="of each, at least (default: %(default)s)")
    add("--tokens", type=positive_int, default=24, help="of each answer (default: %(default)s)")
    add("--passes", type=positive_int, default=2, help="of all rules, another one first in each (default: %(default)s)")
    add("--seed", type=int, default=0, help="of what is said (default: %(default)s)")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")
    return parser
