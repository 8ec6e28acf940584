"""Division of tasks: to train the head, to choose its threshold, and to report on it."""

import hashlib
from dataclasses import dataclass

from lab.training.tasks.task import Task
from outrider.contracts.errors import ParameterError

_VALIDATION_SHARE = 5  # one training task in this many


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
