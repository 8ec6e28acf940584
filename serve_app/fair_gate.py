"""So many of an event loop's tasks at a time, accounts in turn."""

import asyncio
from collections.abc import Callable

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

    async def enter(self, account: str) -> Callable[[], None]:
        """Wait for a turn; what is returned gives it back, once, however often it is called.

        Raises:
            BusyError: too many wait.
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
        except BaseException:  # cancelled, with a turn or without
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
