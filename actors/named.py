"""A named actor as others find it. Ray asks the cluster's head for it, which may be away: never on an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from actors.waiting import within


class Named:
    """Of one caller; all methods run on its event loop, the search in a thread, one at a time."""

    def __init__(self, find: Callable[[], Any], deadline_s: float = 5.0) -> None:
        """``find`` may take as long as the head is away; nobody waits for it longer than ``deadline_s``."""
        self._find, self._deadline_s = find, deadline_s
        self._finding: asyncio.Future[Any] | None = None
        self.known: Any = None

    async def handle(self) -> Any:
        """The actor, found anew if it was ``lost``.

        Raises:
            TimeoutError: the head does not answer in time.
            Exception: what ``find`` does.
        """
        if self.known is not None:
            return self.known
        if self._finding is None:
            self._finding = asyncio.ensure_future(asyncio.to_thread(self._find))
            self._finding.add_done_callback(self._found)
        return await within(self._deadline_s, asyncio.shield(self._finding))

    def lost(self) -> None:
        """It is gone for good, and another one may have its name."""
        self.known = None

    def _found(self, finding: "asyncio.Future[Any]") -> None:
        self._finding = None
        if not finding.cancelled() and finding.exception() is None:
            self.known = finding.result()
