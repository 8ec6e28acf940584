"""What a run found, as JSON and as a table: the worst case of each family."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hostile.promises import HEADINGS, PROMISES, Family, Figure

_SHOWN = (
    Figure.REFUSED_S,
    Figure.LOOP_S,
    Figure.SILENCE_S,
    Figure.FIRST_TOKEN_S,
    Figure.BROKEN,
    Figure.INGRESS_CPU_S,
    Figure.INGRESS_MIB,
    Figure.COORDINATOR_MIB,
    Figure.FLEET_MIB,
    Figure.GATEWAY_MIB,
    Figure.FLEET_S,
    Figure.REVOKED_S,
    Figure.LOST,
)
Row = Mapping[str, Any]  # a result, as JSON has it


def table(results: Sequence[Row]) -> str:
    """Worst figures of each family, and how many of its cases broke a promise; in Markdown."""
    heads = ["cases of", "tried", "broken", *(HEADINGS[figure] for figure in _SHOWN)]
    rows = [" | ".join(heads), " | ".join(["---"] * len(heads))]
    for family in Family:
        mine = [row for row in results if row["family"] == family]
        if mine:
            broken = sum(1 for row in mine if row["wrong"])
            cells = [_worst(row["figures"].get(str(figure)) for row in mine) for figure in _SHOWN]
            rows.append(" | ".join([str(family), str(len(mine)), str(broken), *cells]))
    return "\n".join(f"| {row} |" for row in rows)


def compared(before: Sequence[Row], after: Sequence[Row]) -> str:
    """The worst of each family, before and after, in one table."""
    heads = ["cases of", "", "tried", "broken", *(HEADINGS[figure] for figure in _SHOWN)]
    rows = [" | ".join(heads), " | ".join(["---"] * len(heads))]
    for family in Family:
        for when, results in (("before", before), ("after", after)):
            (*_, line) = table([row for row in results if row["family"] == family]).splitlines()
            if line.startswith(f"| {family} "):
                rows.append(line.removeprefix("| ").removesuffix(" |").replace(" | ", f" | {when} | ", 1))
    return "\n".join(f"| {row} |" for row in rows)


def worst_cases(results: Sequence[Row], most: int = 3) -> str:
    """Names of what broke most, a few of each family."""
    lines = []
    for family in Family:
        mine = [row for row in results if row["family"] == family and row["wrong"]]
        mine.sort(key=lambda row: (-row["figures"].get("lost", 0), -row["figures"].get("loop_s", 0)))
        lines += [f"- {family}: {row['name']}: {'; '.join(row['wrong'])}" for row in mine[:most]]
    return "\n".join(lines)


def promises_table() -> str:
    """As SECURITY.md has it."""
    rows = ["| what one key, device or file can cost others | at most | by |", "| --- | --- | --- |"]
    for promise in PROMISES:
        by = "anything" if promise.families == frozenset(Family) else ", ".join(sorted(promise.families))
        rows.append(f"| {promise.what} | {promise.text} | {by} |")
    return "\n".join(rows)


def write(path: Path, content: Mapping[str, object]) -> None:
    """JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n")


def read(path: Path) -> list[Row]:
    """Results of a file."""
    results: list[Row] = json.loads(path.read_text())["results"]
    return results


def _worst(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    worst = max(known, default=None)
    return "" if worst is None else f"{worst:,.0f}" if worst >= 100 else f"{worst:.3g}"
