"""What a coordinator and a gateway say to each other: frames of devices' calls and replies on one TCP stream.

    call:  length 32 | incarnation 64 | number 32 | most bytes of the reply 32 | call
    reply: length 32 | incarnation 64 | number 32 | outcome 8                  | reply

The length is of what follows the number. Both sides prove first that they know the gateway's secret, which the fleet
tells coordinators (``actors.proved_streams``).
"""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from actors.proved_streams import StreamPlace
from outrider.contracts.errors import MessageError
from outrider.versions import Versions
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES

MOST_BUFFERED_BYTES = 2**26  # of a stream whose other side does not read
_READ_BYTES = 2**16
_GATHER_S = 0.001  # frames of a stream that is written more often leave together
_HEAD, _BOUND = struct.Struct(">IQI"), struct.Struct(">I")


class RelayOutcome(IntEnum):
    REPLIED = 0
    ELSEWHERE = 1  # no such incarnation is here: it has moved, or is gone
    BUSY = 2  # too many calls wait for the device
    BROKEN = 3  # the device broke the contract; the content says how


@dataclass(frozen=True, slots=True)
class DialledHandle:
    """A device that has dialled in, as it is leased: a process of it, and the gateway that it is with."""

    place: StreamPlace
    incarnation: int  # of all of the fleet's devices only this process has it
    versions: Versions


class RelayFrame(NamedTuple):
    incarnation: int
    number: int
    content: bytes


class LinkWriter:
    """Writes together what was put in one turn of the event loop, and on a busy stream in a millisecond."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer, self._parts, self._loop = writer, list[bytes](), asyncio.get_running_loop()
        self._written_at_s = -_GATHER_S

    def put_call(self, incarnation: int, number: int, most_bytes: int, call: bytes) -> None:
        self._put(incarnation, number, _BOUND.pack(most_bytes), call)

    def put_reply(self, incarnation: int, number: int, outcome: RelayOutcome, reply: bytes = b"") -> None:
        self._put(incarnation, number, bytes([outcome]), reply)

    def _put(self, incarnation: int, number: int, prefix: bytes, content: bytes) -> None:
        if not self._parts:
            if self._loop.time() - self._written_at_s < _GATHER_S:
                self._loop.call_later(_GATHER_S, self._write)
            else:
                self._loop.call_soon(self._write)
        self._parts += (_HEAD.pack(len(prefix) + len(content), incarnation, number), prefix, content)

    def _write(self) -> None:
        transport, self._written_at_s = self._writer.transport, self._loop.time()
        if not transport.is_closing():
            transport.write(b"".join(self._parts))
            if transport.get_write_buffer_size() > MOST_BUFFERED_BYTES:
                transport.abort()
        self._parts.clear()


class LinkReader:
    """Reads frames that came together at once."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._rest = reader, bytearray()

    async def frames(self) -> Sequence[RelayFrame]:
        """Wait for more, and return the frames that are whole now, perhaps none.

        Raises:
            MessageError: one is too long; the stream is of no further use.
            asyncio.IncompleteReadError: the stream has ended.
        """
        data = await self._reader.read(_READ_BYTES)
        if not data:
            raise asyncio.IncompleteReadError(bytes(self._rest), None)
        rest, found, start = self._rest, list[RelayFrame](), 0
        rest += data
        while len(rest) - start >= _HEAD.size:
            length, incarnation, number = _HEAD.unpack_from(rest, start)
            if length > (most := MOST_DEVICE_CALL_BYTES + _BOUND.size):
                raise MessageError(f"needs a frame of at most {most} bytes, found {length}; it was not read")
            end = start + _HEAD.size + length
            if len(rest) < end:
                break
            found.append(RelayFrame(incarnation, number, bytes(rest[start + _HEAD.size : end])))
            start = end
        del rest[:start]
        return found


def call_of(frame: RelayFrame) -> tuple[int, bytes]:
    """Return the bound of the reply, and the call; a ``MessageError`` for another frame."""
    if len(frame.content) < _BOUND.size:
        raise MessageError(f"needs a call with the bound of its reply, found {len(frame.content)} bytes")
    (most_bytes,) = _BOUND.unpack_from(frame.content)
    return min(most_bytes, MOST_DEVICE_CALL_BYTES), frame.content[_BOUND.size :]


def reply_of(frame: RelayFrame) -> tuple[RelayOutcome, bytes]:
    """Return the outcome, and the reply; a ``MessageError`` for another frame."""
    try:
        return RelayOutcome(frame.content[0]), frame.content[1:]
    except (IndexError, ValueError):
        raise MessageError(f"needs the outcome of a call, found {frame.content[:1]!r}") from None
