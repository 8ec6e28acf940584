"""What all pages of an ingress see of the fleet: asked once a second at most, however many look."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from pydantic import TypeAdapter

from actors.messages import FleetStatus
from serve_app.answers import Status
from serve_app.page.history import History

LOOK_S = 1.0
_STATUS = TypeAdapter(FleetStatus)


class Watching:
    """Of one ingress. While nobody looks nothing is asked and nothing is kept up to date."""

    def __init__(self, status: Callable[[], Awaitable[Status]], clock: Callable[[], float]) -> None:
        """``status`` is ``Service.status``; ``clock`` tells Unix time."""
        self._ask, self._clock = status, clock
        self._history = History()
        self._looking = asyncio.Lock()
        self._seen: Mapping[str, object] = {}
        self._seen_at_s = float("-inf")

    async def view(self, after_s: float) -> dict[str, object]:
        """How things stand, and the figures of looks after that time.

        Raises:
            FleetUnavailableError: the fleet does not answer.
        """
        async with self._looking:
            if not 0.0 <= self._clock() - self._seen_at_s < LOOK_S:  # clocks may be set back
                seen = await self._ask()
                self._history.looked(_STATUS.validate_python(seen), self._clock())
                self._seen, self._seen_at_s = seen, self._clock()
        return {**self._seen, "at_s": self._seen_at_s, "history": self._history.columns(after_s)}
