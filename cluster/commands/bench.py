"""Measure; ``outrider bench NAME --help`` lists a benchmark's own options. Benchmarks need a source checkout."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from outrider.contracts.errors import ParameterError

_CHECKOUT = Path(__file__).parents[2]
_IS_CHECKOUT = (_CHECKOUT / "bench" / "catalogue.py").is_file()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which benchmark; it reads its own options."""
    names = tuple(_catalogue()) if _IS_CHECKOUT else None
    parser.add_argument("name", choices=names, metavar="NAME", help=", ".join(names or ("needs a source checkout",)))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="passed to the benchmark")


def run(arguments: argparse.Namespace) -> None:
    """Run one.

    Raises:
        ParameterError: this is no checkout, or matplotlib is missing where a benchmark draws.
    """
    if not _IS_CHECKOUT:
        needed = "a source checkout, installed with `pip install -e .`, as packages hold no benchmarks"
        raise ParameterError("outrider bench", needed, f"none at {_CHECKOUT}")
    _catalogue()[arguments.name](arguments.arguments)


def _catalogue() -> dict[str, Callable[[list[str]], None]]:
    if str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))  # installed so, only the packages of a wheel are found
    from bench.catalogue import BENCHES

    return BENCHES
