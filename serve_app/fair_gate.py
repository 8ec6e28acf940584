"""So many of an event loop's tasks at a time, accounts in turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.contracts.errors import BusyError
from outrider.fair_queueing.queue import FairQueue


class FairGate:
    """All methods run on one event loop."""

    def __init__(self, most: int, most_waiting: int) -> None:
        """Nobody is in.

        Args:
            most: in at a time, of one account half as many.
            most_waiting: of all accounts; where more come, those are refused of whose account most wait.
        """
        self._free = most
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(most_waiting, most_waiting, max(most // 2, 1))

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it while the block is open.

        Raises:
            BusyError: too many wait.
        """
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._queue.put(account, mine):
            raise BusyError(f"needs a turn, found {self._queue.waiting(account)} of one account that wait for theirs")
        self._let_in()
        try:
            await mine
            yield
        finally:
            if mine.done() and not mine.cancelled():
                self._leave(account)
            else:
                self._queue.remove(account, mine)

    def _leave(self, account: str) -> None:
        self._free += 1
        self._queue.release(account)
        self._let_in()

    def _let_in(self) -> None:
        while self._free and (taken := self._queue.take()) is not None:
            account, future = taken
            if future.cancelled():
                self._queue.release(account)
                continue
            self._free -= 1
            future.set_result(None)
