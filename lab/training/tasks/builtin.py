"""Tasks for the embedded pair: partly solvable by a model of 135M parameters, in answers of some 80 tokens or more.

Each kind is a set of templates over drawn words and numbers (``builtin.yaml``). Some want exact copies or facts, where
every wrong token costs a part; in others only the facts count, and their wording is free.
"""

import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from lab.training.tasks.task import Check, Task

_PARTS = Path(__file__).with_name("builtin.yaml")
TASKS_PER_KIND = 44


@dataclass(frozen=True, slots=True)
class SolvedTask:
    """A task with an answer that has all of its parts."""

    task: Task
    answer: str


def builtin_tasks(per_kind: int = TASKS_PER_KIND) -> tuple[Task, ...]:
    """Distinct tasks, always the same: the default set kind by kind, then further ones with the kinds alternating."""
    return tuple(solved.task for solved in solved_builtin_tasks(per_kind))


def solved_builtin_tasks(per_kind: int = TASKS_PER_KIND) -> tuple[SolvedTask, ...]:
    source = yaml.safe_load(_PARTS.read_text(encoding="utf-8"))
    by_kind: list[list[SolvedTask]] = []
    for kind, templates in source["kinds"].items():
        rng = random.Random(kind)  # noqa: S311  prompts, not secrets
        prompts: dict[str, SolvedTask] = {}
        while len(prompts) < per_kind:
            drawn = _solved(f"{kind}-{len(prompts)}", kind, templates, _rows(source, templates["rows"], rng))
            prompts.setdefault(drawn.task.prompt, drawn)
        by_kind.append(list(prompts.values()))
    usual = (one for own in by_kind for one in own[:TASKS_PER_KIND])
    further = (one for together in zip(*by_kind, strict=True) for one in together)
    return (*usual, *islice(further, len(by_kind) * TASKS_PER_KIND, None))


def _rows(source: dict[str, Any], count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Rows that fill the templates; no word occurs twice in a task unless its list is too short."""
    words = {field: rng.sample(choices, len(choices)) for field, choices in source["words"].items()}
    start, step, day = rng.randint(1, 60), rng.choice((1, 2, 5, 10)), 0 if count > 1 else rng.randrange(7)
    rows: list[dict[str, Any]] = []
    for i in range(count):
        drawn = {field: choices[i % len(choices)] for field, choices in words.items()}
        others = {f"other_{field}": choices[-1 - i % len(choices)] for field, choices in words.items()}
        large, small = rng.randint(8, 19), rng.randint(3, 9)
        numbers = {"large": large, "small": small, "sum": large + small, "number": start + i * step, "step": step}
        numbers |= {"age": rng.randint(18, 79), "price": rng.randint(2, 19), "hour": rng.randint(2, 9)}
        numbers |= {"year": rng.randint(1930, 1990), "i": i + 1}
        rows.append({**drawn, **others, **numbers, "day": source["days"][(i + day) % 7]})
    return rows


def _solved(key: str, kind: str, templates: dict[str, Any], rows: list[dict[str, Any]]) -> SolvedTask:
    filled = {name: "\n".join(templates.get(name, "").format(**row) for row in rows) for name in ("line", "question")}
    prompt = templates["prompt"].format(
        lines=filled["line"], questions=filled["question"], rows=rows, first=rows[0], last=rows[-1]
    )
    parts = tuple(part.format(**row) for row in rows for part in templates["parts"])
    answer = templates.get("opening", "") + "\n".join(templates["answer"].format(**row) for row in rows)
    return SolvedTask(Task(key, kind, prompt, parts, Check(templates.get("check", Check.IN_ORDER))), answer)
