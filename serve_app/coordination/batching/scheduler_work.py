"""Counts how often the scheduler is woken, by blocks or by the replies of steps, and the seconds that this takes."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., None])


class SchedulerWork(NamedTuple):
    """Wake-ups so far, and seconds of the event loop in them."""

    wakeups: int = 0
    awake_s: float = 0.0


def counted(method: _Method) -> _Method:
    """Have each call of a method count as a wake-up in its object's ``work``, by its ``_clock``."""

    @wraps(method)
    def timed(self: Any, *given: Any) -> None:
        began_s = self._clock()
        try:
            method(self, *given)
        finally:
            self.work = SchedulerWork(self.work.wakeups + 1, self.work.awake_s + self._clock() - began_s)

    return cast("_Method", timed)
