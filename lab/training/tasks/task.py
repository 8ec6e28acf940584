"""A prompt whose answer has checkable parts, with the share that is right as its score; and how tasks are divided."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from outrider.contracts.errors import ParameterError

_NUMBER = re.compile(r"(?:(?<!\w)-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")


class Check(StrEnum):
    IN_ORDER = "in_order"  # each part occurs behind those before it; counts the most that fit in order
    ANYWHERE = "anywhere"  # each part occurs
    LAST_NUMBER = "last_number"  # the one part is the last number of the answer (GSM8K)


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt.

    Attributes:
        parts: what a right answer contains, at least one; compared without regard to case and to runs of blanks. A
            number is not found within a longer one, nor a word (of Latin letters) within another.
    """

    key: str  # unique; alone decides the split
    kind: str  # of task, for reports
    prompt: str  # one user message
    parts: tuple[str, ...]
    check: Check

    def __post_init__(self) -> None:
        if not self.parts or not all(part.strip() for part in self.parts):
            raise ParameterError("parts", "at least one, none of them empty", f"{self.parts} of task {self.key}")
        one_number = len(self.parts) == 1 and _NUMBER.fullmatch(self.parts[0].strip())
        if self.check is Check.LAST_NUMBER and not one_number:
            raise ParameterError("parts", f"one number for {self.check}", f"{self.parts} of task {self.key}")

    def score(self, answer: str) -> float:
        if self.check is Check.LAST_NUMBER:
            numbers = _NUMBER.findall(answer)
            return float(bool(numbers) and _value(numbers[-1]) == _value(self.parts[0]))
        text, patterns = _plain(answer), [_pattern(part) for part in self.parts]
        if self.check is Check.ANYWHERE:
            return sum(1 for pattern in patterns if pattern.search(text)) / len(patterns)
        return _most_in_order(patterns, text) / len(patterns)


def _most_in_order(patterns: Sequence[re.Pattern[str]], text: str) -> int:
    """The most patterns that can be found in order without overlap."""
    ends = [0]  # ends[n]: end of the shortest prefix of the text that contains n of the patterns seen so far
    for pattern in patterns:
        found = [pattern.search(text, end) for end in ends]
        for n, match in reversed(list(enumerate(found, 1))):
            if match and n == len(ends):
                ends.append(match.end())
            elif match:
                ends[n] = min(ends[n], match.end())
    return len(ends) - 1


def _pattern(part: str) -> re.Pattern[str]:
    text = _plain(part)
    return re.compile(f"(?<!{_like(text[0])}){re.escape(text)}(?!{_like(text[-1])})")


def _like(edge: str) -> str:
    """What must not stand beside the edge of a part: a character that would continue its number or word."""
    if edge.isdecimal():
        return r"\d"
    return "[a-z]" if edge.isascii() and edge.isalpha() else r"[^\s\S]"


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _value(number: str) -> float:
    return float(number.replace(",", ""))


_TRAIN_SHARE, _CALIBRATION_SHARE = 0.6, 0.2  # the rest is the test
_VALIDATION_SHARE = 5  # one training task in this many


def split_tasks(tasks: Iterable[Task]) -> tuple[tuple[Task, ...], tuple[Task, ...], tuple[Task, ...]]:
    """Train with 60 %, calibrate with 20 %, test with 20 %, each in order; a task's split depends on its key alone."""
    train, calibration, test = list[Task](), list[Task](), list[Task]()
    for task in tasks:
        at = _uniform(task.key)
        held_out = calibration if at < _TRAIN_SHARE + _CALIBRATION_SHARE else test
        (train if at < _TRAIN_SHARE else held_out).append(task)
    return tuple(train), tuple(calibration), tuple(test)


def _uniform(key: str) -> float:
    """In [0, 1), by the key's hash."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / 2**48


@dataclass(frozen=True, slots=True)
class TaskDivision:
    """Disjoint, non-empty sets of tasks; ``training`` includes the validation tasks."""

    training: tuple[Task, ...]
    calibration: tuple[Task, ...]
    test: tuple[Task, ...]

    def __post_init__(self) -> None:
        keys = [task.key for part in (self.training, self.calibration, self.test) for task in part]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise ParameterError("tasks", "tasks with distinct keys", f"{', '.join(twice[:3])} more than once")
        for name in ("training", "calibration", "test"):
            if not getattr(self, name):
                needed = f"enough for training, calibration and test ({name} got none)"
                raise ParameterError("tasks", needed, f"{len(keys)} tasks")


def is_validation(task: Task) -> bool:
    """Return whether a training task is held out for early stopping; depends on its key alone."""
    digest = hashlib.sha256(f"validation\0{task.key}".encode()).digest()
    return int.from_bytes(digest[:8]) % _VALIDATION_SHARE == 0
