"""Reads the fleet's status for all pages of an ingress, once per second at most, however many pages poll."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from pydantic import TypeAdapter

from actors.messages import FleetStatus
from serve_app.page.history import History
from serve_app.service_answers import Status

LOOK_S = 1.0
_STATUS = TypeAdapter(FleetStatus)


class Watching:
    """Status and history for the pages of one ingress. While no page polls, nothing is read or updated."""

    def __init__(self, status: Callable[[], Awaitable[Status]], clock: Callable[[], float]) -> None:
        """``status`` is ``Service.status``; ``clock`` returns Unix time."""
        self._ask, self._clock = status, clock
        self._history = History()
        self._polling = asyncio.Lock()
        self._seen: Mapping[str, object] = {}
        self._seen_at_s = float("-inf")

    async def view(self, after_s: float) -> dict[str, object]:
        """Return the present status, and the history after ``after_s``.

        Raises:
            FleetUnavailableError: the fleet does not answer.
        """
        async with self._polling:  # pages that poll together share one read
            if not 0.0 <= self._clock() - self._seen_at_s < LOOK_S:  # clocks may be set back
                seen = await self._ask()
                self._history.looked(_STATUS.validate_python(seen), self._clock())
                self._seen, self._seen_at_s = seen, self._clock()
        return {**self._seen, "at_s": self._seen_at_s, "history": self._history.columns(after_s)}
