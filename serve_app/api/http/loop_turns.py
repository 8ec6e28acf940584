"""Turns at the event loop: one of the runnable requests continues per iteration, accounts alternating."""

import asyncio
import sys

from outrider.fair_queueing.queue import FairQueue


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
