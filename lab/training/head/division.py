"""Which tasks a head learns from, which choose its threshold, and which report on it."""

import hashlib
from dataclasses import dataclass

from lab.training.tasks.task import Task
from outrider.contracts.errors import ParameterError

_VALIDATION_SHARE = 5  # one training task in so many


@dataclass(frozen=True, slots=True)
class TaskDivision:
    """Disjoint sets of tasks, none empty; ``training`` includes what it is validated on."""

    training: tuple[Task, ...]
    calibration: tuple[Task, ...]
    test: tuple[Task, ...]

    def __post_init__(self) -> None:
        """Refuse an empty set, or a task in two."""
        keys = [task.key for part in (self.training, self.calibration, self.test) for task in part]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise ParameterError("tasks", "tasks whose keys differ", f"{', '.join(twice[:3])} more than once")
        for name in ("training", "calibration", "test"):
            if not getattr(self, name):
                needed = f"so many that training, calibration and test all get some ({name} got none)"
                raise ParameterError("tasks", needed, f"{len(keys)} tasks")


def is_validation(task: Task) -> bool:
    """Whether a training task is held out, to tell when to stop: by its key alone."""
    digest = hashlib.sha256(f"validation\0{task.key}".encode()).digest()
    return int.from_bytes(digest[:8]) % _VALIDATION_SHARE == 0
