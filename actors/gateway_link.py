"""What a coordinator and a gateway say to each other: frames of devices' calls and replies on one TCP stream.

    call:  length 32 | incarnation 64 | number 32 | most bytes of the reply 32 | call
    reply: length 32 | incarnation 64 | number 32 | outcome 8                  | reply

The length is of what follows the number. Both sides prove first that they know the gateway's secret, which the fleet
tells coordinators (``actors.proved_streams``).
"""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

from actors.proved_streams import StreamPlace
from outrider.contracts.errors import MessageError
from outrider.versions import Versions
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES

MOST_BUFFERED_BYTES = 2**26  # of a stream whose other side does not read
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


@dataclass(frozen=True, slots=True)
class RelayFrame:
    incarnation: int
    number: int
    content: bytes


class LinkWriter:
    """Writes what was put in one turn of the event loop together."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer, self._parts = writer, list[bytes]()

    def put_call(self, incarnation: int, number: int, most_bytes: int, call: bytes) -> None:
        self._put(incarnation, number, _BOUND.pack(most_bytes), call)

    def put_reply(self, incarnation: int, number: int, outcome: RelayOutcome, reply: bytes = b"") -> None:
        self._put(incarnation, number, bytes([outcome]), reply)

    def _put(self, incarnation: int, number: int, prefix: bytes, content: bytes) -> None:
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._write)
        self._parts += (_HEAD.pack(len(prefix) + len(content), incarnation, number), prefix, content)

    def _write(self) -> None:
        transport = self._writer.transport
        if not transport.is_closing():
            transport.write(b"".join(self._parts))
            if transport.get_write_buffer_size() > MOST_BUFFERED_BYTES:
                transport.abort()
        self._parts.clear()


async def read_relayed(reader: asyncio.StreamReader) -> RelayFrame:
    """Return the next frame.

    Raises:
        MessageError: it is too long; the stream is of no further use.
        asyncio.IncompleteReadError: the stream has ended.
    """
    length, incarnation, number = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if length > (most := MOST_DEVICE_CALL_BYTES + _BOUND.size):
        raise MessageError(f"needs a frame of at most {most} bytes, found {length}; it was not read")
    return RelayFrame(incarnation, number, await reader.readexactly(length))


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
