"""Limits how many tasks of an event loop run at a time, fairly between accounts."""

import asyncio
from collections.abc import Callable

from outrider.contracts.errors import BusyError
from outrider.fair_queueing.queue import FairQueue


class FairGate:
    """All methods run on one event loop."""

    def __init__(self, most: int, most_waiting: int) -> None:
        """Start with all turns free.

        Args:
            most: turns at a time; one account gets half of them at most.
            most_waiting: of all accounts; beyond it, the account with the most waiting tasks is refused.
        """
        self._free = most
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(most_waiting, most_waiting, max(most // 2, 1))

    async def enter(self, account: str) -> Callable[[], None]:
        """Wait for a turn; return a function that gives it back, and may be called more than once.

        Raises:
            BusyError: too many tasks wait.
        """
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._queue.put(account, mine):
            raise BusyError(f"needs a turn, found {self._queue.waiting(account)} of one account that wait for theirs")
        self._let_in()
        given_back = False

        def release() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                self._free += 1
                self._queue.release(account)
                self._let_in()

        try:
            await mine
        except BaseException:  # cancelled: the turn may have been given before the task woke, and must not be lost
            if mine.done() and not mine.cancelled():
                release()
            else:
                self._queue.remove(account, mine)
            raise
        return release

    def _let_in(self) -> None:
        while self._free and (taken := self._queue.take()) is not None:
            account, future = taken
            if future.cancelled():
                self._queue.release(account)
                continue
            self._free -= 1
            future.set_result(None)
