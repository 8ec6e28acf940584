"""``outrider bench capacity``: to how many users promises are kept, policy by policy, on the real engine.

Emulated devices (paced steps, emulated links, drafts that the real drafter made once) ask the core of a real
coordinator for one greedy response after another; its verifier is a real actor. Every policy serves the same users, one
policy after the other within one run. ``sled`` computes the whole prefix in every verification, the others keep KV; no
response finds KV of another one. Lateness is defined in ``outrider.simulation.results``.

With ``--record`` the run is kept; ``--validate`` replays a kept run in the simulator and compares.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bench.capacity.figures import Figures, figures
from bench.capacity.log import CellLog
from bench.capacity.plan import POLICIES
from bench.capacity.run import Run, RunSettings, measure, read_run, write_run
from bench.capacity.tables import show_figures
from bench.capacity.validation import validate
from bench.capacity.workload import workload
from bench.harness.options import positive_int
from bench.harness.record import write_record
from outrider.contracts.errors import ParameterError
from outrider.link.profiles import PROFILES
from outrider.simulation.recorded import write_record as write_workload

_DEFAULT = RunSettings()


def main(argv: Sequence[str]) -> None:
    """Run the bench, or validate the simulator against a run."""
    args = _parser().parse_args(argv)
    if args.validate is not None:
        validate(read_run(args.validate), args.json)
        return
    settings = _settings(args)
    if settings.stagger_s > settings.warmup_s:
        raise ParameterError("--stagger-s", f"at most --warmup-s ({settings.warmup_s:g})", settings.stagger_s)
    print(f"{settings.total_s / 60:.1f} minutes of measurements, and a minute or two for models", flush=True)
    with tqdm(total=round(settings.total_s), unit="s", disable=None) as bar:

        def told(log: CellLog) -> None:
            bar.update(round(settings.warmup_s + settings.measured_s))
            bar.set_postfix_str(log.cell.name)

        run = measure(settings, told)
    if args.record is not None:
        write_run(args.record, run)
    if args.workloads is not None:
        args.workloads.mkdir(parents=True, exist_ok=True)
        for log in run.logs:
            write_workload(workload(log, settings), args.workloads / f"{log.cell.name}.json")
    _report(run, args.json, args.plots)


def _report(run: Run, json_file: Path | None, plots: Path | None) -> None:
    settings = run.settings
    found = [_figures(run, policy, users) for users in settings.users for policy in settings.policies]
    show_figures(found)
    if json_file is not None:
        write_record(json_file, asdict(settings), {"figures": [_without_plane(one) for one in found]})
    if plots is not None:
        from bench.capacity.plots import plot_over_users, plot_plane  # noqa: PLC0415 (matplotlib comes with an extra)

        plot_over_users(plots / "capacity.png", found)
        plot_plane(plots / "capacity-plane.png", found)


def _figures(run: Run, policy: str, users: int) -> Figures:
    settings = run.settings
    return figures(run.of(policy, users), block_tokens=settings.block_tokens, grace_s=settings.grace_s)


def _without_plane(one: Figures) -> dict[str, object]:
    return {field.name: getattr(one, field.name) for field in fields(Figures) if field.name != "plane"}


def _settings(args: argparse.Namespace) -> RunSettings:
    given: dict[str, Any] = {field.name: getattr(args, field.name) for field in fields(RunSettings)}
    return RunSettings(**given | {name: tuple(given[name]) for name in ("policies", "users", "speeds")})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench capacity", description=__doc__)
    add = parser.add_argument
    add("--policies", nargs="+", choices=tuple(POLICIES), default=_DEFAULT.policies, help="(default: all)")
    add("--users", type=positive_int, nargs="+", default=_DEFAULT.users, help="numbers of (default: %(default)s)")
    add("--repeats", type=positive_int, default=_DEFAULT.repeats, help="of everything (default: %(default)s)")
    add("--warmup-s", type=float, default=_DEFAULT.warmup_s, help="of a cell (default: %(default)s)")
    add("--measured-s", type=float, default=_DEFAULT.measured_s, help="of a cell after that (default: %(default)s)")
    add("--speeds", type=float, nargs="+", default=_DEFAULT.speeds, help="promised, in turns (default: %(default)s)")
    add("--window", type=int, default=_DEFAULT.window, help="draft tokens of a round (default: %(default)s)")
    add("--step-s", type=float, default=_DEFAULT.step_s, help="a device's per draft token (default: %(default)s)")
    add(
        "--prefill-token-s",
        type=float,
        default=_DEFAULT.prefill_token_s,
        help="per prompt token (default: %(default)s)",
    )
    add("--link", choices=tuple(PROFILES), default=_DEFAULT.link, help="of each device (default: %(default)s)")
    add(
        "--pause-s", type=float, default=_DEFAULT.pause_s, help="a user's mean between responses (default: %(default)s)"
    )
    add("--stagger-s", type=float, default=_DEFAULT.stagger_s, help="users begin within this (default: %(default)s)")
    add("--prompts", type=positive_int, default=_DEFAULT.prompts, help="recorded (default: %(default)s)")
    add("--tokens", type=positive_int, default=_DEFAULT.tokens, help="of a response at most (default: %(default)s)")
    add("--least-tokens", type=int, default=_DEFAULT.least_tokens, help="shorter ones unused (default: %(default)s)")
    add("--grace-s", type=float, default=_DEFAULT.grace_s, help="for a first token (default: %(default)s)")
    add("--seed", type=int, default=_DEFAULT.seed, help="of links, pauses and orders (default: %(default)s)")
    add("--target", default=_DEFAULT.target, help="name or path (default: %(default)s)")
    add("--drafter", default=_DEFAULT.drafter, help="name or path (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write settings and figures")
    add("--plots", type=Path, metavar="FOLDER", help="write capacity.png and capacity-plane.png")
    add("--record", type=Path, metavar="FILE", help="keep the run (gzipped JSON)")
    add("--workloads", type=Path, metavar="FOLDER", help="write each cell as a workload the simulator can replay")
    add("--validate", type=Path, metavar="FILE", help="replay a kept run in the simulator, measure nothing")
    return parser
