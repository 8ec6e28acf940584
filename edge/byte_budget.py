"""Bounds the bytes of calls that a process has in its memory."""

import asyncio

_PAGE_BYTES = 4096  # the least that a call counts


class ByteBudget:
    """Whoever comes first takes first, so that large calls are not passed by small ones for ever."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes`` bounds each call, too."""
        self._pages, self._turn = asyncio.Semaphore(most_bytes // _PAGE_BYTES), asyncio.Lock()

    async def take(self, size: int) -> int:
        """Wait for room for ``size`` bytes; returns what is to be given back."""
        taken, needed = 0, size // _PAGE_BYTES + 1
        async with self._turn:
            try:
                while taken < needed:
                    await self._pages.acquire()
                    taken += 1
            except BaseException:
                self.give_back(taken)
                raise
        return taken

    def give_back(self, taken: int) -> None:
        for _ in range(taken):
            self._pages.release()
