"""Cache of an answer that many clients request: computed once, and kept for a second."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

from actors.waiting import retrieve

_Answer = TypeVar("_Answer")
KEPT_S = 1.0


class Shared(Generic[_Answer]):
    """For one event loop. Requests during a computation wait for it; errors are answers, too."""

    def __init__(self, make: Callable[[], Awaitable[_Answer]], kept_s: float = KEPT_S) -> None:
        self._make, self._kept_s = make, kept_s
        self._making: asyncio.Task[_Answer] | None = None
        self._made_at_s = float("inf")

    async def get(self) -> _Answer:
        """Return the last answer, or a new one. Cancelling a caller does not cancel the computation."""
        loop = asyncio.get_running_loop()
        if self._making is None or (self._making.done() and loop.time() - self._made_at_s >= self._kept_s):
            self._making = loop.create_task(self._made(), context=Context())  # of no request: all share it
            self._making.add_done_callback(retrieve)  # perhaps no caller waits any more
        return await asyncio.shield(self._making)

    async def _made(self) -> _Answer:
        try:
            return await self._make()
        finally:
            self._made_at_s = asyncio.get_running_loop().time()
