"""``outrider bench mode_choice``: cost of a verifier's choice whether to draft, on a virtual clock.

Closed loops of clients that all start at once on a cold service. Each is simulated under every fixed window, including
0, and under the tuner: its regret is the share of the best window's tokens that it lacks.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

from cluster.reports.tables import percent, show_table
from lab.bench.harness.record import write_record
from lab.bench.mode_choice.cells import COSTS, Cell, Outcome, played
from lab.simulation.scenario import MODELLED_MODES
from outrider.selection.registry import SELECTION


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its table."""
    parser = argparse.ArgumentParser(prog="outrider bench mode_choice", description=__doc__)
    add = parser.add_argument
    add("--costs", nargs="+", choices=tuple(COSTS), default=list(COSTS), help="of the verifier's passes (default: all)")
    add("--clients", type=int, nargs="+", default=[1, 4, 8, 16, 32], help="at once (default: %(default)s)")
    add("--rtt-ms", type=float, nargs="+", default=[0.0, 50.0], help="of the links (default: %(default)s)")
    add("--step-ms", type=float, nargs="+", default=[18.9], help="to draft a token (default: %(default)s)")
    add("--acceptance", type=float, default=0.65, help="of a drafted token (default: %(default)s)")
    add("--windows", type=int, nargs="+", default=[0, 1, 2, 4, 8], help="that are fixed (default: %(default)s)")
    add("--seconds", type=float, default=60.0, help="simulated (default: %(default)s)")
    add("--warmup-s", type=float, default=10.0, help="left out of the figures behind it (default: %(default)s)")
    policies = [name for name, one in SELECTION.items() if not one.needs_window]
    add("--policy", choices=policies, default="cost_aware", help="in drafting modes (default: %(default)s)")
    add(
        "--modes",
        nargs="+",
        choices=MODELLED_MODES,
        default=list(MODELLED_MODES),
        help="of the tuner (default: %(default)s)",
    )
    add("--seeds", type=int, default=1, help="runs of each cell (default: %(default)s)")
    add("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    if 0 not in args.windows:
        parser.error(f"--windows needs 0 among them, found {args.windows}")
    modes = tuple(args.modes)
    cells = [
        Cell(costs, clients, rtt_ms / 1e3, step_ms / 1e3, args.acceptance, args.seconds, seed, args.policy, modes)
        for rtt_ms, step_ms, costs, clients, seed in product(
            args.rtt_ms, args.step_ms, args.costs, args.clients, range(args.seeds)
        )
    ]
    with ProcessPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(partial(played, windows=args.windows, warmup_s=args.warmup_s), cells))
    show(outcomes)
    if args.json is not None:
        write_record(args.json, args, {"outcomes": outcomes})


def show(outcomes: Sequence[Outcome]) -> None:
    """Print a table; seeds of a cell in one row."""
    rows = dict[tuple[str, ...], list[Outcome]]()
    for outcome in outcomes:
        cell = outcome.cell
        key = cell.costs, f"{1e3 * cell.rtt_s:g}", f"{1e3 * cell.step_s:g}", str(cell.clients)
        rows.setdefault(key, []).append(outcome)
    show_table(
        "Regret of the tuner",
        (
            *("costs", "RTT ms", "draft ms", "clients", "best window", "cold", "behind warm-up"),
            *("against none, cold", "keeps", "tries", "cost of tries"),
        ),
        [
            (
                *key,
                "/".join(sorted({str(one.best) for one in runs})),
                *(percent(mean(one.regret(one.best, warm=warm) for one in runs)) for warm in (False, True)),
                percent(mean(one.regret(0, warm=False) for one in runs)),
                "/".join(sorted({one.kept for one in runs})),
                f"{mean(one.probes for one in runs):g}",
                percent(mean(one.probes_lost_s / one.cell.seconds for one in runs)),
            )
            for key, runs in rows.items()
        ],
    )
