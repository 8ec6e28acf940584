"""``outrider bench capacity``: number of users whose promises are kept, by policy, on the real engine.

Emulated devices (paced steps, emulated links, drafts recorded from the real drafter) request short greedy responses of
a real coordinator's core; its verifier is a real actor. A *cell* is one policy under one load, and ends once enough
responses have ended. Loads are closed (users who send the next request after the answer) or open (requests at a rate,
Poisson or in bursts, each from a user with its own device). Every policy gets the same requests, one policy after the
other. ``sled`` computes the whole prefix in every verification, the others keep KV; ``slo_aware_admission`` admits as
the service does, the others admit everything. No response finds KV of another one. Lateness is defined in
``lab.simulation.results``, intervals in ``lab.bench.capacity.figures``. *Slowness* compares the machine between
cells: the time of the batches over that of a model fitted to the batches of all cells.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from cluster.option_types import natural, new_file, positive, positive_int
from lab.bench.capacity.figures import batch_model, figures, show_figures
from lab.bench.capacity.log import CLOSED, OPEN, CellLog
from lab.bench.capacity.plan import BASELINE, POLICIES
from lab.bench.capacity.run import RunSettings, measure
from lab.bench.harness.record import write_record
from lab.options import not_negative

_DEFAULT = RunSettings()


def main(argv: Sequence[str]) -> None:
    args = _parser().parse_args(argv)
    settings = _settings(args)
    with tqdm(total=len(settings.cells), unit="cell", disable=None) as bar:

        def show(log: CellLog) -> None:
            bar.update()
            bar.set_postfix_str(log.cell.name)

        logs = measure(settings, show)
    measured: dict[tuple[str, str], list[CellLog]] = {}
    for log in logs:
        measured.setdefault((log.cell.load, log.cell.policy), []).append(log)
    model = batch_model(batch for log in logs for batch in log.batches)
    found = [
        figures(
            repeats,
            block_tokens=settings.block_tokens,
            grace_s=settings.grace_s,
            baseline=() if policy == BASELINE else measured.get((load, BASELINE), ()),
            model=model,
        )
        for (load, policy), repeats in measured.items()
    ]
    found.sort(key=lambda one: one.load)
    show_figures(found)
    if args.json is not None:
        write_record(args.json, asdict(settings), {"figures": found})


def _settings(args: argparse.Namespace) -> RunSettings:
    asked = {name: getattr(args, name) for name in _HELP}
    given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in asked.items()}
    return RunSettings(**given)


_HELP = {
    "policies": "of batches",
    "arrivals": "closed loops and open ones",
    "users": "numbers of, in closed loops",
    "rates": "responses asked for per second, in open loops",
    "repeats": "of everything",
    "first_repeat": "the number of the first one",
    "most_s": "of a cell in all, however many have ended",
    "speeds": "promised, in turns",
    "pause_s": "a user's mean between responses, in closed loops",
    "prompts": "recorded",
    "seed": "of links, pauses and orders",
    "target": "name or path",
    "drafter": "name or path",
}
_CHOICES = {"policies": tuple(POLICIES), "arrivals": (CLOSED, *OPEN)}
_TYPES = {
    **dict.fromkeys(("users", "repeats", "prompts"), positive_int),
    **dict.fromkeys(("first_repeat", "seed"), natural),
    **dict.fromkeys(("rates", "most_s", "speeds"), positive),
    "pause_s": not_negative,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench capacity", description=__doc__)
    add = parser.add_argument
    for name, text in _HELP.items():
        default = getattr(_DEFAULT, name)
        add(
            f"--{name.replace('_', '-')}",
            type=_TYPES.get(name, str),
            nargs="+" if isinstance(default, tuple) else None,
            choices=_CHOICES.get(name),
            default=default,
            help=f"{text} (default: %(default)s)",
        )
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    return parser
