"""Bounds the bytes of calls that a process has in its memory."""

import asyncio

_LEAST_BYTES = 4096  # that a call counts


class ByteBudget:
    """Whoever comes first takes first, so that large calls are not passed by small ones for ever."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes`` bounds each call, too."""
        self._left, self._turn, self._given = most_bytes, asyncio.Lock(), asyncio.Event()

    async def take(self, size: int) -> int:
        """Wait for room for ``size`` bytes; returns what is to be given back."""
        needed = size + _LEAST_BYTES
        async with self._turn:
            while self._left < needed:
                self._given.clear()
                await self._given.wait()
            self._left -= needed
        return needed

    def give_back(self, taken: int) -> None:
        self._left += taken
        self._given.set()
