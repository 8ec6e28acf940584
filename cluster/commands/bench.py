"""Run a benchmark; ``outrider bench NAME --help`` lists its options. Benchmarks need a source checkout."""

import argparse
import sys
from pathlib import Path

from outrider.contracts.errors import ParameterError

_CHECKOUT = Path(__file__).parents[2]
_IS_CHECKOUT = (_CHECKOUT / "bench" / "catalogue.py").is_file()
if _IS_CHECKOUT and str(_CHECKOUT) not in sys.path:
    sys.path.append(str(_CHECKOUT))  # an editable install exposes only the packages of the wheel


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    names = None
    if _IS_CHECKOUT:
        from bench.catalogue import BENCHES

        names = BENCHES
    parser.add_argument("name", choices=names, metavar="NAME", help=", ".join(names or ("needs a source checkout",)))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="passed to the benchmark")


def run(arguments: argparse.Namespace) -> None:
    if not _IS_CHECKOUT:
        needed = "a source checkout, installed with `pip install -e .`, as packages hold no benchmarks"
        raise ParameterError("outrider bench", needed, f"none at {_CHECKOUT}")
    from bench.catalogue import run as run_bench

    run_bench(arguments.name, arguments.arguments)
