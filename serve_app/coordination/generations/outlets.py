"""Sends chunks from a coordinator to each ingress over one stream, in messages that gather the chunks of all responses.

The chunks that a step brings to many responses leave in one message, as each item of a Serve stream costs both ends
time. Messages are at least 20 ms apart, so that several short steps share one; after a longer pause a chunk leaves at
once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager

from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import GenerationChunk, GenerationId
from serve_app.coordination.credit import Credit

Piece = GenerationChunk | OutriderError  # an error behind chunks travels with them, as it must not overtake them
Message = tuple[tuple[GenerationId, Piece], ...]

_PAUSE_S = 0.02
_IDLE_S = 1.0  # a stream without responses ends after this: Serve waits for the streams of a replica that it stops
_FORGOTTEN_S = 60.0  # an outlet that was not used for so long is dropped: its ingress is gone


class Outlet:
    """Chunks for one ingress, which reads them by one stream; they wait while it has none open."""

    def __init__(self, clock: Callable[[], float], *, unheard: bool = False) -> None:
        """Start empty; ``clock`` is monotonic, in seconds."""
        self._clock, self._unheard = clock, unheard
        self._gathered: list[tuple[GenerationId, Piece]] = []
        self._some = asyncio.Event()
        self._told_at_s, self._used_at_s = float("-inf"), clock()
        self._credits: dict[GenerationId, Credit] = {}  # of responses that are being made
        self._readers = 0

    @contextmanager
    def response(self, generation: GenerationId) -> Iterator[tuple[Callable[[GenerationChunk], None], Credit]]:
        """Yield a function that sends the response's chunks, and the response's credit.

        An ``OutriderError`` raised in the context is sent behind the chunks if there were any; else it is raised.
        """
        begun, credit = False, Credit()
        credit.unheard(self._unheard)

        def put(piece: Piece) -> None:
            nonlocal begun
            begun = True
            if not isinstance(piece, OutriderError):
                credit.sent(len(piece.token_ids))
            self._gathered.append((generation, piece))
            self._some.set()

        self._credits[generation] = credit
        try:
            yield put, credit
        except OutriderError as error:
            if not begun:
                raise
            put(error)
        finally:
            del self._credits[generation]
            self._used_at_s = self._clock()

    def read(self, tokens: Mapping[GenerationId, int]) -> None:
        """Restore credit by the number of tokens read of each response."""
        for generation, count in tokens.items():
            if (credit := self._credits.get(generation)) is not None:
                credit.read(count)

    def unheard(self, unheard: bool) -> None:
        """Suspend flow control, or resume it, as the ingress cannot report what was read; see ``Credit.unheard``."""
        self._unheard = unheard
        for credit in self._credits.values():
            credit.unheard(unheard)

    async def messages(self) -> AsyncGenerator[Message]:
        """Yield messages until there has been no response for a second."""
        self._readers += 1
        try:
            while await self._await_chunks():
                await asyncio.sleep(max(0.0, self._told_at_s + _PAUSE_S - self._clock()))  # more chunks gather
                message, self._gathered = tuple(self._gathered), []
                self._some.clear()
                self._told_at_s = self._clock()
                yield message
        finally:
            self._readers -= 1
            self._used_at_s = self._clock()

    @property
    def forgotten(self) -> bool:
        """Whether the outlet has no responses and no readers, and was not used for a minute."""
        return not (self._credits or self._readers) and self._clock() - self._used_at_s > _FORGOTTEN_S

    async def _await_chunks(self) -> bool:
        while not self._gathered:
            try:
                async with asyncio.timeout(_IDLE_S):
                    await self._some.wait()
            except TimeoutError:
                if not self._credits:
                    return False
        return True


class Outlets:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._unheard = clock, False
        self._outlets: dict[str, Outlet] = {}

    def of(self, ingress: str) -> Outlet:
        """Return the ingress's outlet; create it, and drop forgotten ones, if there is none."""
        if ingress not in self._outlets:
            self._outlets = {name: outlet for name, outlet in self._outlets.items() if not outlet.forgotten}
            self._outlets[ingress] = Outlet(self._clock, unheard=self._unheard)
        return self._outlets[ingress]

    def unheard(self, unheard: bool) -> None:
        """Suspend or resume flow control for all, as ingresses cannot reach this replica; cheap to repeat."""
        if unheard == self._unheard:
            return
        self._unheard = unheard
        for outlet in self._outlets.values():
            outlet.unheard(unheard)
