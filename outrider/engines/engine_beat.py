"""Measures how long an engine's thread has been in its present step, so that other threads see that it hangs.

An actor's event loop answers while its engine hangs, so an answer alone does not show that the engine works.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class EngineBeat:
    """Start of the engine thread's present work. Written by that thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start idle; ``clock`` is monotonic, in seconds."""
        self._clock = clock
        self._since_s: float | None = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark one piece of work of the engine's thread: a step, or what it does between two."""
        self._since_s = self._clock()
        try:
            yield
        finally:
            self._since_s = None

    @property
    def busy_s(self) -> float:
        """Seconds in the present piece of work; 0 while idle."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._clock() - since_s
