"""Turns at the event loop: of requests that could all go on at once one does at a time, accounts in turn."""

import asyncio
import sys

from outrider.fair_queueing.queue import FairQueue


class LoopTurns:
    """Of one event loop. Between two requests it looks at its sockets, so that whoever connects meanwhile is heard."""

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue(sys.maxsize, sys.maxsize, 1)  # requests are bounded
        self._begun = False

    async def next(self, account: str) -> None:
        """Wait until it is this account's turn, behind what it had before."""
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
            if not turn.done():  # a client that left cancels its request
                turn.set_result(None)
                break
        self._begun = bool(self._waiting)
        if self._begun:
            asyncio.get_running_loop().call_soon(self._give)
