"""Results of items: means over seeds, kept as one JSON file per paper, and written into the papers' page.

A cell of the page names its figure in a comment before the value, which is written anew from the results:
``<!-- dssd / tables 2 and 3 / dsd -->0.68 / 0.65<!-- -->``. Behind it stand ``¹`` where only one of several seeds was
run, and ``†`` where a tree was run that is no commit's. What is not run yet, or is of other code, is said so.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from lab.reproduce.items import Figures, Item

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reproduced"
PAGE = ROOT / "docs" / "papers.md"
_CELL = re.compile(r"<!-- (\w+) / ([^/]+) / ([^>]+?) -->(.*?)<!-- -->")
_NOT_RUN = "not run"
_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided, by the number of seeds

Results = dict[str, dict[str, Any]]  # of a paper, by item


def over_seeds(runs: Sequence[Figures]) -> dict[str, list[dict[str, float | None]]]:
    """Mean of each figure over runs that differ in the seed, and half of its 95 % interval (Student's t; None of one).

    Raises:
        ValueError: runs have different figures.
    """
    if any(run.keys() != runs[0].keys() for run in runs):
        raise ValueError(f"needs the same figures of every seed, found {[sorted(run) for run in runs]}")
    found = dict[str, list[dict[str, float | None]]]()
    for name in runs[0]:
        columns = list(zip(*(run[name] for run in runs), strict=True))
        found[name] = [{"mean": mean(column), "half_interval": _half(column)} for column in columns]
    return found


def over_own_seeds(runs: Sequence[Figures]) -> dict[str, list[dict[str, float | None]]]:
    """Do the same for each figure over the runs that have it at its full length, and say how many these are (``¹``)."""
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        length = max(len(run.get(name, ())) for run in runs)
        having = [{name: run[name]} for run in runs if len(run.get(name, ())) == length]
        found[name] = [value | {"runs": len(having)} for value in over_seeds(having)[name]]
    return found


def _half(values: Sequence[float]) -> float | None:
    return None if len(values) == 1 else _T_95[len(values)] * stdev(values) / len(values) ** 0.5


def read(paper: str, folder: Path = FOLDER) -> Results:
    """Results of a paper that are kept; none if there is no file."""
    file = folder / f"{paper}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def page_with(page: str, kept: Mapping[str, Results], items: Sequence[Item]) -> str:
    """Return the page with every named cell written anew.

    Raises:
        ValueError: a cell names a figure that no result has.
    """
    named = {(item.paper, item.name): item for item in items}

    def cell(found: re.Match[str]) -> str:
        paper, name, figure, _ = found.groups()
        item, result = named.get((paper, name)), kept.get(paper, {}).get(name, {"figures": {}})
        values = result["figures"].get(figure)
        if item is None or (values is None and item.cells is None):
            raise ValueError(f"needs a result for {paper} / {name} / {figure}, found none")
        if values is None:
            return f"<!-- {paper} / {name} / {figure} -->{_NOT_RUN}<!-- -->"
        chosen = item.formats
        digits = max((prefix for prefix in chosen if figure.startswith(prefix)), key=len)
        shown = " / ".join(format(value["mean"], chosen[digits]) for value in values)
        return f"<!-- {paper} / {name} / {figure} -->{shown}{_marks(result['run'], values)}<!-- -->"

    return _CELL.sub(cell, page)


def _marks(run: Mapping[str, Any], values: Sequence[Mapping[str, Any]]) -> str:
    one_seed = any(value.get("runs") == 1 for value in values)
    unknown = any(commit is None or commit.endswith("-dirty") for commit in (run["commit"], *run.get("cells", ())))
    return "¹" * one_seed + "†" * unknown
