"""Threads for what takes long in a request, so that the event loop gets on; accounts take turns at them."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from outrider.fair_queueing.worker import FairWorker

_THREADS = 4  # tokenising lets go of Python's lock; of one account three at most
_T = TypeVar("_T")


class RequestThreads:
    def __init__(self) -> None:
        self._worker = FairWorker("request", _THREADS)

    async def run(self, account: str, work: Callable[[], _T]) -> _T:
        """Have it done in a thread, behind what its account had before it; what is cancelled in time is not begun."""
        return await asyncio.wrap_future(self._worker.submit(work, account))
