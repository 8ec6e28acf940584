"""``outrider bench paper wisp``: WISP's Tables 1, 2 and 3 and Figures 7 and 8, simulated with three seeds."""

import argparse
import gc
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.bench.papers.wisp.record import Record
from lab.bench.papers.wisp.tables import Tables

PARTS: Mapping[str, Callable[[Tables], None]] = {
    "qwen3-32b": lambda tables: tables.table_2("qwen3-32b"),
    "mixed": lambda tables: tables.mixed(memory=False),
    "loads": lambda tables: tables.table_1(),
    "mixed-limited": lambda tables: tables.mixed(memory=True),
    "qwen3-14b": lambda tables: tables.table_2("qwen3-14b"),
    "repairs": lambda tables: tables.repairs(),
}
_SELDOM = (100_000, 50, 1000)  # hardly any object of a run is garbage: a fifth of its time


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--parts", nargs="*", choices=PARTS, default=tuple(PARTS), help="(default: all)")
    add("--quick", action="store_true", help="one seed, one speed, short runs")
    add("--json", type=Path, default=None, metavar="FILE", help="kept after each cell; cells in it are not run again")


def wisp_part(args: argparse.Namespace) -> None:
    gc.set_threshold(*_SELDOM)
    tables = Tables(Record(args.json), quick=args.quick)
    tables.search()
    for name in args.parts:
        PARTS[name](tables)
