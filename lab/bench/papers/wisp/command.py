"""``outrider bench paper wisp``: WISP's Tables 1, 2 and 3 and Figures 7 and 8, simulated with three seeds."""

import argparse
import gc
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.bench.papers.wisp.provenance import code_commit
from lab.bench.papers.wisp.record import Record
from lab.bench.papers.wisp.tables import Tables
from lab.reports.json_file import write_json

PARTS: Mapping[str, Callable[[Tables], None]] = {
    "qwen3-32b": lambda tables: tables.table_2("qwen3-32b"),
    "mixed": lambda tables: tables.mixed(memory=False),
    "loads": lambda tables: tables.table_1(),
    "mixed-limited": lambda tables: tables.mixed(memory=True),
    "qwen3-14b": lambda tables: tables.table_2("qwen3-14b"),
    "settings": lambda tables: tables.settings(),
}
_SELDOM = (100_000, 50, 1000)  # hardly any object of a run is garbage: a fifth of its time


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--parts", nargs="*", choices=PARTS, default=tuple(PARTS), help="(default: all)")
    add("--quick", action="store_true", help="one seed, one speed, short runs; no cells are kept")
    add("--cells", type=Path, default=None, metavar="FILE", help="kept after each cell; cells in it are not run again")
    add("--recorded", action="store_true", help="run nothing: take only cells that are kept")
    add("--json", type=Path, default=None, metavar="FILE", help="write the cells of these parts")


def wisp_part(args: argparse.Namespace) -> None:
    gc.set_threshold(*_SELDOM)
    record = Record(None if args.quick else args.cells, code_commit())
    tables = Tables(record, quick=args.quick, runs=not args.recorded)
    for name in args.parts:
        PARTS[name](tables)
    if args.json is not None:
        write_json(args.json, record.current)
