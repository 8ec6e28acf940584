"""How far a response may go ahead of whoever reads it."""

import asyncio
from collections.abc import Callable

MOST_UNREAD_TOKENS = 128


class Credit:
    """Of one response: used up by tokens that are told, restored by those that are read."""

    def __init__(self, tokens: float = MOST_UNREAD_TOKENS) -> None:
        """So many may be unread before nothing more is begun; infinite where nobody says what was read."""
        self._most = tokens
        self._sent = self._read = 0
        self._suspended = self._unheard = False
        self._watched: Callable[[bool], None] | None = None
        self._behind = False
        self._left = asyncio.Event()
        self._left.set()

    def watch(self, reader_is_behind: Callable[[bool], None]) -> None:
        """Have it called whenever the reader falls behind as far as it may, and when it has read on."""
        self._watched = reader_is_behind

    @property
    def left(self) -> bool:
        """Whether there is any."""
        return self._left.is_set()

    def sent(self, tokens: int) -> None:
        """So many more were told."""
        self._sent += tokens
        self._judge()

    def read(self, tokens: int) -> None:
        """So many of all that were told have been read."""
        self._read = max(self._read, min(tokens, self._sent))
        self._judge()

    def suspended(self) -> None:
        """Its place is needed for another: nothing more is begun until it ``continues``."""
        self._suspended = True
        self._judge()

    def continues(self) -> None:
        """It has a place again."""
        self._suspended = False
        self._judge()

    def unheard(self, unheard: bool) -> None:
        """Whether nobody can say what was read: then nothing waits for it."""
        self._unheard = unheard
        self._judge()

    async def restored(self) -> None:
        """Wait until there is some."""
        await self._left.wait()

    def _judge(self) -> None:
        behind = not self._unheard and self._sent - self._read >= self._most
        if behind != self._behind:
            self._behind = behind
            if self._watched is not None:
                self._watched(behind)
        if not (behind or self._suspended):
            self._left.set()
        else:
            self._left.clear()


def endless() -> Credit:
    """Of a response whose reader takes all as it comes."""
    return Credit(float("inf"))
