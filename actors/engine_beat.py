"""Whether the thread that owns an engine gets on: told by that thread, asked by others.

An actor's event loop answers however long its engine stands still, so that is no sign of an engine that works.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class EngineBeat:
    """When the engine's thread began what it is doing now. Written by one thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """It does nothing; ``clock`` is monotonic, in seconds."""
        self._clock = clock
        self._since_s: float | None = None

    @contextmanager
    def working(self) -> Iterator[None]:
        """While the engine's thread does one thing: a step, or what is done between two."""
        self._since_s = self._clock()
        try:
            yield
        finally:
            self._since_s = None

    @property
    def busy_s(self) -> float:
        """For so long it has been doing one thing; 0 while it does nothing."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._clock() - since_s
