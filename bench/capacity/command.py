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
from bench.harness.options import positive_int
from bench.harness.record import write_record
from outrider.contracts.errors import ParameterError
from outrider.link.profiles import PROFILES

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

        def show(log: CellLog) -> None:
            bar.update(round(settings.warmup_s + settings.measured_s))
            bar.set_postfix_str(log.cell.name)

        run = measure(settings, show)
    if args.record is not None:
        write_run(args.record, run)
    _report(run, args.json)


def _report(run: Run, json_file: Path | None) -> None:
    settings = run.settings
    found = [_figures(run, policy, users) for users in settings.users for policy in settings.policies]
    show_figures(found)
    if json_file is not None:
        write_record(json_file, asdict(settings), {"figures": found})


def _figures(run: Run, policy: str, users: int) -> Figures:
    settings = run.settings
    return figures(run.of(policy, users), block_tokens=settings.block_tokens, grace_s=settings.grace_s)


def _settings(args: argparse.Namespace) -> RunSettings:
    given: dict[str, Any] = {field.name: getattr(args, field.name) for field in fields(RunSettings)}
    return RunSettings(**given | {name: tuple(given[name]) for name in ("policies", "users", "speeds")})


_HELP = {
    "policies": "of batches",
    "users": "numbers of",
    "repeats": "of everything",
    "warmup_s": "of a cell",
    "measured_s": "of a cell after that",
    "speeds": "promised, in turns",
    "window": "draft tokens of a round",
    "step_s": "a device's per draft token",
    "prefill_token_s": "a device's per prompt token",
    "link": "of each device",
    "pause_s": "a user's mean between responses",
    "stagger_s": "users begin within this",
    "prompts": "recorded",
    "tokens": "of a response at most",
    "least_tokens": "shorter ones are not used",
    "grace_s": "for a first token",
    "seed": "of links, pauses and orders",
    "target": "name or path",
    "drafter": "name or path",
}
_CHOICES = {"policies": tuple(POLICIES), "link": tuple(PROFILES)}
_COUNTED = ("users", "repeats", "prompts", "tokens")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench capacity", description=__doc__)
    add = parser.add_argument
    for name, text in _HELP.items():
        default = getattr(_DEFAULT, name)
        one = default[0] if isinstance(default, tuple) else default
        add(
            f"--{name.replace('_', '-')}",
            type=positive_int if name in _COUNTED else type(one),
            nargs="+" if isinstance(default, tuple) else None,
            choices=_CHOICES.get(name),
            default=default,
            help=f"{text} (default: %(default)s)",
        )
    add("--record", type=Path, metavar="FILE", help="keep the run (gzipped JSON)")
    add("--validate", type=Path, metavar="FILE", help="replay a kept run in the simulator, measure nothing")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    return parser
