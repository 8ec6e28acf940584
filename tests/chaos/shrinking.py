"""The smallest schedule that still fails: faults and streams are taken out as long as it does. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.chaos.schedules import Schedule


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool], most_tries: int) -> Schedule:
    """Take things out of a failing schedule.

    Args:
        schedule: fails.
        fails: tries one. A failure that hangs on chance may be missed: then more is left than need be, never less.
        most_tries: after so many the best so far is taken.
    """
    tries = 0
    while True:
        for smaller in _smaller(schedule):
            if tries == most_tries:
                return schedule
            tries += 1
            if fails(smaller):
                schedule = smaller
                break
        else:
            return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Halves first, then one thing less; a schedule without streams shows nothing."""
    for field in ("faults", "streams"):
        things = getattr(schedule, field)
        least = 1 if field == "streams" else 0
        sizes = sorted({len(things) // 2, 1} - {0}, reverse=True)
        for size in sizes:
            for begin in range(0, len(things), size):
                left = things[:begin] + things[begin + size :]
                if len(left) >= least and len(left) < len(things):
                    yield replace(schedule, **{field: left})
