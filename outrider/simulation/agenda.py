"""What is to happen when: callbacks under a virtual clock. Of one moment, in the order in which they were set."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Happening = Callable[[Any, float], None]  # told its subject and what time it is


class Agenda:
    """Until nothing is left to happen, or the time is over."""

    __slots__ = ("_events", "_sequence", "now_s")

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Happening, Any]] = []
        self._sequence = 0
        self.now_s = 0.0

    def at(self, at_s: float, happening: Happening, subject: object) -> None:
        """Have something happen then."""
        heappush(self._events, (at_s, self._sequence, happening, subject))
        self._sequence += 1

    def run(self, until_s: float) -> None:
        """Let everything happen up to then; ``now_s`` is left at that time, or at the last that happened."""
        events = self._events
        while events and events[0][0] <= until_s:
            self.now_s, _, happening, subject = heappop(events)
            happening(subject, self.now_s)
        if events:
            self.now_s = until_s
