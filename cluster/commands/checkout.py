"""Commands of ``lab``: planning, simulation, training and benchmarks, which need a source checkout."""

import argparse
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from outrider.contracts.errors import ParameterError

_CHECKOUT = Path(__file__).parents[2]
_IS_CHECKOUT = (_CHECKOUT / "lab" / "__init__.py").is_file()


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    if not _IS_CHECKOUT:
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="needs a source checkout")
        parser.set_defaults(run=partial(_refuse, name))
        return
    command = lab_module(f"commands.{name}", name)
    command.add_options(parser)
    parser.set_defaults(run=command.run)


def lab_module(module: str, asked: str) -> Any:
    """Import a module of ``lab`` for an option or command; without a checkout that is a ``ParameterError``."""
    if not _IS_CHECKOUT:
        _refuse(asked)
    if str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))  # an editable install knows the wheel's packages only
    return import_module(f"lab.{module}")


def _refuse(name: str, _: object = None) -> NoReturn:
    needed = "a source checkout, installed with `pip install -e .`, as packages hold no `lab`"
    raise ParameterError(f"outrider {name}", needed, f"none at {_CHECKOUT}")
