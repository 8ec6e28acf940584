"""Run the commands behind the papers' page, keep their figures, and write the page's cells anew.

Without a paper all items are run, which takes days; `--quick` shows that the commands work, and keeps nothing. What is
random is run with three seeds, kept after each; the page shows means, the file has intervals, too. What a command
writes beside its figures, as labels, rounds and models, stays in `build/reproduced`, and is read again by a later run.
`--recorded` runs nothing, and writes what the cells have so far of items that keep such.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.reports.tables import show_table
from cluster.version_text import commit_of
from lab.bench.harness.record import described
from lab.reports.json_file import write_json
from lab.reproduce.items import ITEMS, Item, Record
from lab.reproduce.results import FOLDER, PAGE, ROOT, over_own_seeds, over_seeds, page_with, read
from outrider.contracts.errors import ParameterError


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    papers = sorted({item.paper for item in ITEMS})
    names = ", ".join(f"{item.paper} '{item.name}'" for item in ITEMS)
    parser.add_argument("paper", nargs="?", choices=papers, metavar="PAPER", help=f"one of {', '.join(papers)}")
    parser.add_argument("item", nargs="?", metavar="ITEM", help=f"of these: {names}")
    parser.add_argument("--quick", action="store_true", help="run short forms, and keep no figures")
    parser.add_argument("--recorded", action="store_true", help="run nothing: figures of the cells that are kept")


def run(arguments: argparse.Namespace) -> None:
    for item in _chosen(arguments.paper, arguments.item):
        if arguments.recorded and not item.cells:
            continue
        seeds = item.seeds if item.is_random and not arguments.quick else item.seeds[:1]
        extra = (*(item.quick if arguments.quick else ()), *(("--recorded",) if arguments.recorded else ()))
        records: list[Record] = []
        for seed in (
            seeds[:1] if item.cells else seeds
        ):  # kept after each, so that a run that was ended leaves the others
            with _folder(item, seed, keeps=not arguments.quick) as folder:
                records.append(_run(item, seed, extra, folder))
            _show_and_keep(item, records, seeds if item.cells else seeds[: len(records)], keeps=not arguments.quick)
    if not arguments.quick:
        kept = {paper: read(paper) for paper in {item.paper for item in ITEMS}}
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), kept, ITEMS), encoding="utf-8")


@contextmanager
def _folder(item: Item, seed: int, *, keeps: bool) -> Iterator[Path]:
    """Yield a folder for what a command writes: labels, rounds and models are read again by a later run."""
    if not keeps:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    kept = ROOT / "build" / "reproduced" / item.paper / re.sub(r"\W+", "-", item.name) / str(seed)
    kept.mkdir(parents=True, exist_ok=True)
    yield kept


def _show_and_keep(item: Item, records: Sequence[Record], seeds: Sequence[int], *, keeps: bool) -> None:
    runs = [run for record in records for run in item.runs(record)]
    figures = over_own_seeds(runs) if item.cells or item.is_random else over_seeds(runs)
    rows = [(name, " / ".join(f"{value['mean']:.4g}" for value in values)) for name, values in figures.items()]
    show_table(f"{item.paper}, {item.name}: means of {len(seeds)} seed(s)", ("figure", "values"), rows)
    if not keeps:
        return
    # A cell may be older than the tree, and changes what the tree's files are.
    commits = item.commits(records[0]) if item.cells else [commit_of(ROOT)]
    run = described() | {"commit": commits[-1] if commits else None, "cells": commits}
    found = {item.name: {"run": run, "seeds": seeds, "figures": figures}} if figures else {}
    others = {name: one for name, one in read(item.paper).items() if name != item.name}
    write_json(FOLDER / f"{item.paper}.json", others | found)


def _chosen(paper: str | None, name: str | None) -> Sequence[Item]:
    found = [item for item in ITEMS if paper in (None, item.paper) and name in (None, item.name)]
    if not found:
        needed = f"one of {', '.join(repr(item.name) for item in ITEMS if item.paper == paper)}"
        raise ParameterError("ITEM", needed, name)
    return found


def _run(item: Item, seed: int, extra: Sequence[str], folder: Path) -> Record:
    """Run an item's command; return what it wrote. Cells stay in their file, and are not run again."""
    more = list(extra)
    if item.cells:
        more += ["--cells", str(FOLDER / item.cells)]
    elif item.is_random:
        more += ["--seed", str(seed)]
    command = [sys.executable, "-m", "cluster.cli", *item.arguments(folder, *more)]
    print(f"outrider {' '.join(command[3:])}", flush=True)
    subprocess.run(command, check=True, cwd=ROOT)
    record: Record = json.loads((folder / item.record).read_text(encoding="utf-8"))
    return record
