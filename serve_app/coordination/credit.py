"""Flow control of a response: bounds how many tokens it may be ahead of its reader."""

import asyncio
from collections.abc import Callable

MOST_UNREAD_TOKENS = 128


class Credit:
    """Credit of one response: sent tokens use it up, read tokens restore it. All methods run on one event loop."""

    def __init__(self, tokens: float = MOST_UNREAD_TOKENS) -> None:
        """Allow ``tokens`` unread ones before no further round begins; infinite: no flow control."""
        self._most = tokens
        self._sent = self._read = 0
        self._suspended = self._unheard = False
        self._watched: Callable[[bool], None] | None = None
        self._behind = False
        self._left = asyncio.Event()
        self._left.set()

    def watch(self, reader_is_behind: Callable[[bool], None]) -> None:
        """Set a callback: called with True when unread tokens reach the bound, with False when they fall below it."""
        self._watched = reader_is_behind

    @property
    def left(self) -> bool:
        return self._left.is_set()

    def sent(self, tokens: int) -> None:
        self._sent += tokens
        self._judge()

    def read(self, tokens: int) -> None:
        self._read = max(self._read, min(tokens, self._sent))  # reports may overtake one another, or be wrong
        self._judge()

    def suspend(self) -> None:
        """Begin no round until ``resume``: another response needs the place."""
        self._suspended = True
        self._judge()

    def resume(self) -> None:
        self._suspended = False
        self._judge()

    def unheard(self, unheard: bool) -> None:
        """Switch flow control off while no ingress can report what was read, or the response would wait for ever."""
        self._unheard = unheard
        self._judge()

    async def restored(self) -> None:
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
