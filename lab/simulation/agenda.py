"""Event queue of the simulator: callbacks on a virtual clock. Events at equal times run in the order of their setting.

That order is part of a simulation's results: it makes them reproducible, and decides what arrives before a step begins.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Happening = Callable[[Any, float], None]  # called with its subject and the present time


class Agenda:
    __slots__ = ("_events", "_sequence", "now_s")

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Happening, Any]] = []
        self._sequence = 0  # breaks ties of time
        self.now_s = 0.0

    def at(self, at_s: float, happening: Happening, subject: object) -> None:
        """Schedule a callback at ``at_s``, which is not before ``now_s``."""
        heappush(self._events, (at_s, self._sequence, happening, subject))
        self._sequence += 1

    def run(self, until_s: float) -> None:
        """Run all events up to and at ``until_s``; ``now_s`` ends there, or at the last event if none is left."""
        events = self._events
        while events and events[0][0] <= until_s:
            self.now_s, _, happening, subject = heappop(events)
            happening(subject, self.now_s)
        if events:
            self.now_s = until_s
