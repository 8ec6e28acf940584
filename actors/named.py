"""Finds a named actor in a thread: Ray asks the cluster's head, which may not answer for long."""

import asyncio
from collections.abc import Callable
from typing import Any

from actors.waiting import within


class Named:
    """A cached handle. All methods run on one event loop; ``find`` runs in a thread, one call at a time."""

    def __init__(self, find: Callable[[], Any], deadline_s: float = 5.0) -> None:
        """``find`` may block for as long as the head is away; ``handle`` waits ``deadline_s`` for it at most."""
        self._find, self._deadline_s = find, deadline_s
        self._finding: asyncio.Future[Any] | None = None
        self.known: Any = None

    async def handle(self) -> Any:
        """Return the actor, found again if it was ``lost``.

        Raises:
            TimeoutError: the head does not answer in time.
            Exception: as ``find``.
        """
        if self.known is not None:
            return self.known
        if self._finding is None:
            self._finding = asyncio.ensure_future(asyncio.to_thread(self._find))
            self._finding.add_done_callback(self._found)
        return await within(self._deadline_s, asyncio.shield(self._finding))  # shielded: all callers share the search

    def lost(self) -> None:
        """Drop the handle: the actor is gone for good, and another one may have its name."""
        self.known = None

    def _found(self, finding: "asyncio.Future[Any]") -> None:
        self._finding = None
        if not finding.cancelled() and finding.exception() is None:
            self.known = finding.result()
