"""Carries calls to a drafter over a stream, such as a local socket, on which a device answers (``edge.server``).

The stream may break under a call. It is opened again, and calls that still wait are sent once more: a drafter answers a
repeated one as before. It is broken from here, too: if nothing comes though calls wait, and not even the device's card
when asked, which it sends whatever it computes; if the device leaves too many calls unanswered, or if it reads too
slowly. So nothing is kept for a device without bound.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from actors.coordinator.drafter_replies import broken, silent
from actors.waiting import cut_if_dead, retrieve, within
from edge.frames import frame, read_frame
from outrider.contracts.errors import (
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    MessageError,
    OutriderError,
)
from outrider.contracts.requests import GenerationId
from outrider.versions import VERSIONS
from outrider.wire.calls import FIRST_VERSION, MOST_CALL_BYTES, call_versions, write_call
from outrider.wire.replies import DrafterCard, Reply, read_reply, reply_bytes

_PAUSE_S = 0.05  # before a stream is opened again
_NUMBERS = 2**16  # of calls; one is used again once its call was answered
_MOST_UNANSWERED = 4096  # calls, those included that have met their deadlines
_MOST_UNSENT_BYTES = 2**24  # of calls that wait, or in a stream's buffer; then no further one, of any size
_GREETING = 0  # number of the first call on every stream, by which versions are agreed on, and of signs of life
_GREETED_S = 3.0
_QUIET_S = 1.5  # of a stream on which calls wait; then it is asked for a sign of life, and after as long cut

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class StreamCutError(DrafterLostError):
    """The stream was cut off from here, and none is opened in its place; the drafter may live."""


@dataclass(frozen=True, slots=True, eq=False)
class _WaitingCall:
    method: str
    arguments: tuple[Any, ...]
    size_bytes: int
    most_bytes: int
    reply: "asyncio.Future[bytes]"

    def written(self, version: int) -> bytes:
        return write_call(self.method, *self.arguments, version=version)


@dataclass(slots=True)
class _Heard:
    bytes: int = 0  # that have come, on all streams


class _HeardReader:
    """Reads a stream and counts what has come, so that a slow device is told from a silent one."""

    def __init__(self, reader: asyncio.StreamReader, heard: _Heard) -> None:
        self._reader, self._heard = reader, heard

    async def readexactly(self, n: int, /) -> bytes:
        data = bytearray()
        while len(data) < n:
            part = await self._reader.read(n - len(data))
            if not part:
                raise asyncio.IncompleteReadError(bytes(data), n)
            self._heard.bytes += len(part)
            data += part
        return bytes(data)


class SocketDrafterTransport:
    """Calls over a stream that ``connect`` opens."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[Stream]],
        pause_s: float = _PAUSE_S,
        most_call_bytes: int = MOST_CALL_BYTES,
    ) -> None:
        """Open nothing yet: ``greet`` does.

        Args:
            name: of the drafter.
            connect: opens a stream; by a ``DrafterLostError`` of it waiting calls end, too.
            pause_s: before a stream is opened again.
            most_call_bytes: a larger call is a ``MessageError``, and is not sent.
        """
        self._name, self._connect, self._pause_s, self._most_call_bytes = name, connect, pause_s, most_call_bytes
        self.message_version = VERSIONS.messages.newest
        self.protocol_version = FIRST_VERSION
        self._waiting: dict[int, _WaitingCall] = {}
        self._waiting_bytes = 0
        self._bounds: dict[int, int] = {}  # of replies that may come on this stream, by number
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None  # while the stream is open and versions are agreed on
        self._unagreed: asyncio.StreamWriter | None = None  # while it is open
        self._heard = _Heard()
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False
        self.opened = 0  # times that the stream was opened
        self.was_cut = False  # from here

    async def greet(self, deadline_s: float) -> DrafterCard:
        """Return the drafter's card, and agree on the highest versions that both sides know.

        Raises:
            DrafterBrokenError: it has no version in common, or sends no card.
            DrafterLostError: no answer within ``deadline_s`` seconds.
        """
        card = await self.called("card", deadline_s=deadline_s)
        try:
            return self._agreed(card)
        except DrafterBrokenError as error:
            raise DrafterBrokenError(f"drafter {self._name} {error}") from error

    def _agreed(self, card: Reply) -> DrafterCard:
        """Take the highest versions that both sides know."""
        if not isinstance(card, DrafterCard):
            raise DrafterBrokenError(f"needs to send its card, found {card!r:.60}")
        ours, theirs = call_versions(VERSIONS), card.versions
        if (fault := ours.fault(theirs)) is not None:
            raise DrafterBrokenError(f"needs {fault}; install the same version of outrider on its device")
        protocol, messages = ours.protocol.common(theirs.protocol), ours.messages.common(theirs.messages)
        assert protocol is not None, "as there is no fault"
        assert messages is not None, "as there is no fault"
        self.protocol_version, self.message_version = protocol, messages
        return card

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Agree on versions with the device at this stream's end: it may have been updated since the last one."""
        writer.write(frame(_GREETING, write_call("card")))
        most_bytes = reply_bytes("card")
        _, reply = await read_frame(reader, lambda number: most_bytes if number == _GREETING else -1)
        self._agreed(read_reply(reply, most_bytes))

    def close(self, generation: GenerationId) -> None:
        """Have the drafter drop a generation, without waiting; lost if the stream is broken just now."""
        if self._is_hoarding:
            self._cut()
        elif self._writer is not None:
            data = write_call("close", generation, version=self.protocol_version)
            self._send(self._next_number(), data, reply_bytes("close"), self._writer)

    async def disconnect(self) -> None:
        """Close the stream for good. Calls that still wait, and later ones, end by ``DrafterLostError``."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        self._end_waiting(self._disconnected())

    def _disconnected(self) -> DrafterLostError:
        return DrafterLostError(f"drafter {self._name} is disconnected")

    def _end_waiting(self, error: OutriderError) -> None:
        for call in self._waiting.values():
            if not call.reply.done():
                call.reply.set_exception(error)

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    async def called(self, method: str, *arguments: Any, deadline_s: float, most_bytes: int | None = None) -> Reply:
        """Call a method and return its reply, of at most ``most_bytes``."""
        if self._is_closed:
            raise self._disconnected()
        most_bytes = reply_bytes(method) if most_bytes is None else most_bytes
        data = write_call(method, *arguments, version=self.protocol_version)
        if len(data) > self._most_call_bytes:
            raise MessageError(f"needs a call of at most {self._most_call_bytes} bytes, found {len(data)}")
        self._refuse_too_many()
        number = self._next_number()
        reply = asyncio.get_running_loop().create_future()
        call = _WaitingCall(method, arguments, len(data), most_bytes, reply)
        self._waiting[number] = call
        self._waiting_bytes += call.size_bytes
        if self._writer is not None:
            self._send(number, data, most_bytes, self._writer)
        elif self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(retrieve)
        try:
            return read_reply(await within(deadline_s, call.reply), most_bytes)
        except TimeoutError:
            raise silent(self._name, deadline_s) from None
        except DrafterBrokenError as error:
            raise broken(self._name, error) from error
        finally:
            del self._waiting[number]
            self._waiting_bytes -= call.size_bytes

    def _next_number(self) -> int:
        self._number = (self._number + 1) % _NUMBERS
        while self._number == _GREETING or self._number in self._waiting or self._number in self._bounds:
            self._number = (self._number + 1) % _NUMBERS
        return self._number

    def _refuse_too_many(self) -> None:
        if self._is_hoarding:
            self._cut()
        if len(self._waiting) >= _MOST_UNANSWERED or self._waiting_bytes > _MOST_UNSENT_BYTES:
            raise DrafterSilentError(
                f"drafter {self._name} needs fewer than {_MOST_UNANSWERED} calls of {_MOST_UNSENT_BYTES} bytes that "
                f"wait, found {len(self._waiting)} of {self._waiting_bytes}"
            )

    @property
    def _is_hoarding(self) -> bool:
        return self._writer is not None and len(self._bounds) >= _MOST_UNANSWERED

    def _cut(self) -> None:
        """Break the stream. ``_run`` opens it again if calls wait."""
        if (stream := self._writer or self._unagreed) is not None:
            stream.transport.abort()
            self._writer, self.was_cut = None, True

    def _bound(self, number: int) -> int:
        """Return how long a reply may be, once: late ones are read as well, those of calls never sent are not."""
        return self._bounds.pop(number, -1)

    def _send(self, number: int, data: bytes, most_bytes: int, writer: asyncio.StreamWriter) -> None:
        if writer is self._writer and writer.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self._cut()
            return
        self._bounds[number] = most_bytes
        writer.write(frame(number, data))

    async def _run(self) -> None:
        """Keep the stream open while calls wait for replies, and hand these over."""
        try:
            while True:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await self._read()
                if not self._waiting:
                    return
                await asyncio.sleep(self._pause_s)
        except DrafterLostError as error:
            self._end_waiting(error)
        except OutriderError as error:
            self._end_waiting(DrafterBrokenError(str(error)))

    async def _read(self) -> None:
        stream, writer = await self._connect()
        self.opened += 1
        watching: asyncio.Task[None] | None = None
        try:
            self._unagreed = writer
            async with asyncio.timeout(_GREETED_S):
                await self._greet(stream, writer)
            reader = _HeardReader(stream, self._heard)
            self._bounds.clear()
            for number, call in self._waiting.items():
                self._send(number, call.written(self.protocol_version), call.most_bytes, writer)
            self._writer = writer
            watching = asyncio.create_task(self._watch(writer))
            while True:
                number, reply = await read_frame(reader, self._bound)
                if (found := self._waiting.get(number)) is not None and not found.reply.done():
                    found.reply.set_result(reply)
        finally:
            self._writer = self._unagreed = None
            if watching is not None:
                watching.cancel()
            writer.transport.abort()  # ``close`` would wait until the device has read what is buffered
            with suppress(OSError):
                await writer.wait_closed()

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        def ask() -> None:
            self._send(_GREETING, write_call("card"), reply_bytes("card"), writer)

        await cut_if_dead(_QUIET_S, lambda: bool(self._bounds), lambda: self._heard.bytes, ask, self._cut)
