"""The command line: a table of commands. Only the chosen one is imported, so that ``outrider --help`` is quick.

A user's mistake prints ``outrider: error: ...`` and exits with status 2; an interrupt exits silently with 130.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from outrider.contracts.errors import OutriderError

_USER_ERROR = 2
_INTERRUPTED = 130
_COMMANDS = {
    "serve": "start a cluster on this machine and serve the API until Ctrl-C",
    "deploy": "put the service on a running Ray cluster, update it, or remove it",
    "top": "watch a running service in the terminal",
    "chat": "talk to a running service in the terminal",
    "dashboards": "write Grafana dashboards, Prometheus rules and alerts for a service",
    "config": "show or check the configuration",
    "models": "manage the embedded models",
    "distill": "distil a drafter for a target from the target's own layers",
    "export": "export a draft model to the file that devices draft with",
    "train": "train a decision head or an acceptance predictor for a pair of models",
    "profile": "measure this machine's verification times and fit the scheduler's cost model",
    "simulate": "run scenarios on a virtual clock: a YAML file, or the WISP paper's capacity tables",
    "plan": "predict a deployment's tokens/s and capacity, and whether drafting pays",
    "reproduce": "run the commands behind docs/papers.md, and write its figures anew",
    "bench": "run a benchmark; `outrider bench NAME --help` lists a benchmark's own options",
}
_OF_CHECKOUT = frozenset({"train", "simulate", "plan", "reproduce", "bench"})


class _ShowVersion(argparse.Action):
    """Look versions up only when they are asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from cluster.version_text import version_text

        print(version_text())
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; ``argv`` None: this process's arguments."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        parser = _parser(given[:1])
        arguments, unknown = parser.parse_known_args(given)
        if unknown:
            getattr(arguments, "refuse_unknown", partial(_refuse, parser))(unknown)
        arguments.run(arguments)
    except OutriderError as error:
        print(f"outrider: error: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _refuse(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    parser.error(f"unrecognized arguments: {' '.join(unknown)}")


def _parser(chosen: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="outrider", description="Serve large language models by distributed speculative decoding."
    )
    shown = "show the versions of outrider and its engines, and exit"
    parser.add_argument("--version", action=_ShowVersion, nargs=0, default=argparse.SUPPRESS, help=shown)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in _COMMANDS.items():
        added = commands.add_parser(name, help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        if [name] == chosen:
            _fill(added, name)
    return parser


def _fill(parser: argparse.ArgumentParser, name: str) -> None:
    if name in _OF_CHECKOUT:
        from cluster.commands import checkout

        checkout.add_options(parser, name)
        return
    command: Any = import_module(f"cluster.commands.{name}")
    command.add_options(parser)
    parser.set_defaults(run=command.run)


if __name__ == "__main__":
    sys.exit(main())
