"""Measure; ``outrider bench NAME --help`` lists a benchmark's own options."""

import argparse

from lab.bench.catalogue import BENCHES
from lab.bench.catalogue import run as run_bench


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="passed to the benchmark")


def run(arguments: argparse.Namespace) -> None:
    run_bench(arguments.name, arguments.arguments)
