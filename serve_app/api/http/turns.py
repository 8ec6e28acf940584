"""Turns of requests, accounts alternating: at the event loop, one an iteration, and in threads for slow parts."""

import asyncio
import sys
from collections.abc import Callable
from typing import TypeVar

from outrider.fair_queueing.queue import FairQueue
from outrider.fair_queueing.worker import FairWorker

_THREADS = 4  # tokenising releases the GIL; one account gets three at most
_T = TypeVar("_T")


class LoopTurns:
    """Turns of one event loop. Between two requests the loop polls its sockets, so that new connections are served."""

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue(sys.maxsize, sys.maxsize, 1)  # requests are bounded
        self._begun = False

    async def next(self, account: str) -> None:
        """Wait for this account's turn, behind its earlier requests."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.put(account, turn)
        if not self._begun:
            self._begun = True
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        while (taken := self._waiting.take()) is not None:
            account, turn = taken
            self._waiting.release(account)
            if not turn.done():  # a client that disconnects cancels its request
                turn.set_result(None)
                break
        self._begun = bool(self._waiting)
        if self._begun:
            asyncio.get_running_loop().call_soon(self._give)


class RequestThreads:
    def __init__(self) -> None:
        self._worker = FairWorker("request", _THREADS)

    async def run(self, account: str, work: Callable[[], _T]) -> _T:
        """Run ``work`` in a thread, behind the account's earlier work; cancelled before its turn, it never starts."""
        return await asyncio.wrap_future(self._worker.submit(work, account))
