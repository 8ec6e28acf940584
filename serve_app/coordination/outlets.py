"""Where chunks leave a coordinator: one stream for each ingress, in messages of all that has gathered.

What a step of the verifier brings to many responses leaves in one message. A message follows the one before it after a
pause, so that where steps are short several of them share one; the first one after a pause leaves at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager

from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import GenerationChunk, GenerationId
from serve_app.coordination.credit import Credit

Piece = GenerationChunk | OutriderError  # the latter ends a response that has begun: it must not overtake its chunks
Message = tuple[tuple[GenerationId, Piece], ...]

_PAUSE_S = 0.02
_IDLE_S = 1.0  # a stream without responses ends: a replica that is to stop waits for its streams
_FORGOTTEN_S = 60.0  # an ingress that has not read for so long is gone


class Outlet:
    """Chunks for one ingress, which reads them by one stream; what is put while it has none waits for it."""

    def __init__(self, clock: Callable[[], float], *, unheard: bool = False) -> None:
        """Empty; ``clock`` is monotonic, in seconds."""
        self._clock, self._unheard = clock, unheard
        self._gathered: list[tuple[GenerationId, Piece]] = []
        self._some = asyncio.Event()
        self._told_at_s, self._used_at_s = float("-inf"), clock()
        self._credits: dict[GenerationId, Credit] = {}  # of responses that are being made
        self._readers = 0

    @contextmanager
    def response(self, generation: GenerationId) -> Iterator[tuple[Callable[[GenerationChunk], None], Credit]]:
        """While a response is made: what its chunks are put with, and how far it may go ahead of its reader.

        An error behind its chunks follows them.
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
        """So many tokens of each response have been read."""
        for generation, count in tokens.items():
            if (credit := self._credits.get(generation)) is not None:
                credit.read(count)

    def unheard(self, unheard: bool) -> None:
        """Whether nobody can say what was read."""
        self._unheard = unheard
        for credit in self._credits.values():
            credit.unheard(unheard)

    async def messages(self) -> AsyncGenerator[Message]:
        """Until no response has been made for a while."""
        self._readers += 1
        try:
            while await self._gathers():
                await asyncio.sleep(max(0.0, self._told_at_s + _PAUSE_S - self._clock()))  # others put theirs meanwhile
                message, self._gathered = tuple(self._gathered), []
                self._some.clear()
                self._told_at_s = self._clock()
                yield message
        finally:
            self._readers -= 1
            self._used_at_s = self._clock()

    @property
    def forgotten(self) -> bool:
        """Whether nobody puts, reads or will read."""
        return not (self._credits or self._readers) and self._clock() - self._used_at_s > _FORGOTTEN_S

    async def _gathers(self) -> bool:
        while not self._gathered:
            try:
                async with asyncio.timeout(_IDLE_S):
                    await self._some.wait()
            except TimeoutError:
                if not self._credits:
                    return False
        return True


class Outlets:
    """Of all ingresses that have asked for a response."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._unheard = clock, False
        self._outlets: dict[str, Outlet] = {}

    def of(self, ingress: str) -> Outlet:
        """The one of this ingress."""
        if ingress not in self._outlets:
            self._outlets = {name: outlet for name, outlet in self._outlets.items() if not outlet.forgotten}
            self._outlets[ingress] = Outlet(self._clock, unheard=self._unheard)
        return self._outlets[ingress]

    def unheard(self, unheard: bool) -> None:
        """Whether ingresses cannot reach this coordinator with what they have read; said again it costs nothing."""
        if unheard == self._unheard:
            return
        self._unheard = unheard
        for outlet in self._outlets.values():
            outlet.unheard(unheard)
