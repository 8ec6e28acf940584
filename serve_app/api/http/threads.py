"""Threads for slow parts of requests, which would block the event loop; accounts take turns."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from outrider.fair_queueing.worker import FairWorker

_THREADS = 4  # tokenising releases the GIL; one account gets three at most
_T = TypeVar("_T")


class RequestThreads:
    def __init__(self) -> None:
        self._worker = FairWorker("request", _THREADS)

    async def run(self, account: str, work: Callable[[], _T]) -> _T:
        """Run ``work`` in a thread, behind the account's earlier work; cancelled before its turn, it never starts."""
        return await asyncio.wrap_future(self._worker.submit(work, account))
