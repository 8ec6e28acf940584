"""Load tasks: the built-in ones, or those of a file.

A file has one JSON object a line, in either form:

- ``{"prompt": ..., "parts": [...]}``, optionally with ``"check"`` (default ``in_order``), ``"key"`` (default: the
  prompt's hash) and ``"kind"``
- ``{"question": ..., "answer": "... #### 42"}`` as in GSM8K: the last number of an answer is compared
"""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from lab.training.tasks.task import Check, Task
from outrider.contracts.errors import ParameterError
from outrider.documents.text_file import MAX_DATA_BYTES, read_text

# For the embedded pair: partly solvable by a model of 135M parameters, in answers of some 80 tokens or more. Each kind
# is a set of templates over drawn words and numbers. Some want exact copies or facts, where every wrong token costs a
# part; in others only the facts count, and their wording is free.
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


_FIELD = "tasks"
_BUILTIN = "embedded"
_MOST_PER_KIND = 200  # counting has only 240 different tasks
_ANSWER_FORMAT = 'Think step by step, and end with a line of the form "#### number".'


def load_tasks(source: str) -> tuple[Task, ...]:
    """Load the tasks of ``embedded`` (the built-in ones; ``embedded:N``: N of each kind), or of a JSON Lines file.

    Raises:
        ParameterError: it cannot be read, holds no task or a key twice, or a line, named in the message, is invalid.
    """
    name, _, per_kind = source.partition(":")
    if name == _BUILTIN:
        return builtin_tasks(_per_kind(per_kind)) if per_kind else builtin_tasks()
    path = Path(source).expanduser()
    text = read_text(path, _FIELD, "JSON Lines", MAX_DATA_BYTES)
    lines = [(f"{path}, line {at}", line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    return _tasks(source, ((place, _record(place, line)) for place, line in lines))


def _per_kind(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MOST_PER_KIND:
        needed = f"1..{_MOST_PER_KIND} tasks of each kind behind {_BUILTIN}:"
        raise ParameterError(_FIELD, needed, f"{_BUILTIN}:{text}")
    return int(text)


def _tasks(source: str, records: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[Task, ...]:
    tasks: dict[str, Task] = {}
    places: dict[str, str] = {}
    for place, record in records:
        task = _task(place, record)
        if task.key in tasks:
            found = f"{task.key!r} at {place} and at {places[task.key]}"
            raise ParameterError(_FIELD, "a key of its own for each task; remove one or give it another key", found)
        tasks[task.key], places[task.key] = task, place
    if not tasks:
        raise ParameterError(_FIELD, "at least one task", f"none in {source}")
    return tuple(tasks.values())


def _record(place: str, line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ParameterError(_FIELD, "a JSON object on each line", f"{place}: {error}") from error
    if not isinstance(record, dict):
        raise ParameterError(_FIELD, "a JSON object on each line", f"{place}: {line[:80]}")
    return record


def _task(place: str, record: Mapping[str, Any]) -> Task:
    try:
        return _own(record) if "prompt" in record else _gsm8k(record)
    except ParameterError as error:
        raise ParameterError(_FIELD, f"{error.field}: {error.needed}", f"{place}: {error.found}") from error


def _own(record: Mapping[str, Any]) -> Task:
    parts, check = record.get("parts"), record.get("check") or Check.IN_ORDER.value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ParameterError("parts", "a list of texts, what a right answer has", parts)
    if check not in list(Check):
        raise ParameterError("check", f"one of {', '.join(Check)}", check)
    return _made(record, _text(record, "prompt"), tuple(parts), Check(check))


def _gsm8k(record: Mapping[str, Any]) -> Task:
    if not {"question", "answer"} <= record.keys():
        raise ParameterError("fields", "prompt and parts, or question and answer", ", ".join(record) or "none")
    _, mark, number = _text(record, "answer").rpartition("####")
    if not mark:
        raise ParameterError("answer", 'text that ends in "#### number"', number[-80:])
    return _made(record, f"{_text(record, 'question')}\n\n{_ANSWER_FORMAT}", (number.strip(),), Check.LAST_NUMBER)


def _made(record: Mapping[str, Any], prompt: str, parts: tuple[str, ...], check: Check) -> Task:
    key = _text(record, "key", hashlib.sha256(prompt.encode()).hexdigest()[:16])
    return Task(key, _text(record, "kind", "own"), prompt, parts, check)


def _text(record: Mapping[str, Any], name: str, default: str = "") -> str:
    """A field's text; an empty default makes the field required."""
    text = record.get(name)
    text = default if text is None else text
    if not isinstance(text, str) or not text.strip():
        raise ParameterError(name, "text that is not empty", text)
    return text
