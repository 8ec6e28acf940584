"""Split tasks by their keys: to train a head, to calibrate it, and to test it once."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from lab.training.tasks.task import Task

_TRAIN_SHARE, _CALIBRATION_SHARE = 0.6, 0.2  # the rest is the test


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """Disjoint; each keeps the order of its tasks. A split may be empty if tasks are few."""

    train: tuple[Task, ...]
    calibration: tuple[Task, ...]
    test: tuple[Task, ...]


def split_tasks(tasks: Iterable[Task]) -> TaskSplits:
    """Train 60 %, calibrate with 20 %, test with 20 %; a task's split depends on its key alone."""
    train: list[Task] = []
    calibration: list[Task] = []
    test: list[Task] = []
    for task in tasks:
        at = _uniform(task.key)
        held_out = calibration if at < _TRAIN_SHARE + _CALIBRATION_SHARE else test
        (train if at < _TRAIN_SHARE else held_out).append(task)
    return TaskSplits(tuple(train), tuple(calibration), tuple(test))


def _uniform(key: str) -> float:
    """In [0, 1), by the key's hash."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / 2**48
