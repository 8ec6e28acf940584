"""Calls of a verifier and replies of its steps over a stream, without Ray, where both processes are on one node.

Either side pickles for the other, as Ray does: ``actors.local_streams`` lets nobody but this user's processes connect.
"""

import asyncio
import pickle
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from actors.local_streams import Stream
from actors.messages import StepReply, VerifyCall
from actors.waiting import retrieve

_LENGTH = struct.Struct("<I")


def _frame(message: VerifyCall | StepReply) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


async def _read(reader: asyncio.StreamReader) -> object:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 (of this user's own process)


async def serve_steps(stream: Stream, take: Callable[[VerifyCall], None], replies: "asyncio.Queue[StepReply]") -> None:
    """Take the calls of a coordinator and send it the replies, until it leaves."""
    reader, writer = stream
    sending = asyncio.create_task(_send_all(writer, replies))
    sending.add_done_callback(retrieve)
    try:
        while isinstance(call := await _read(reader), VerifyCall):
            take(call)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        sending.cancel()
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _send_all(writer: asyncio.StreamWriter, replies: "asyncio.Queue[StepReply]") -> None:
    with suppress(OSError):
        while True:
            writer.write(_frame(await replies.get()))
            await writer.drain()


class StepStream:
    """A coordinator's end of a stream to its verifier."""

    def __init__(self, stream: Stream) -> None:
        self._reader, self._writer = stream

    def give(self, call: VerifyCall) -> None:
        """Send a call; lost if the verifier is gone, which ``replies`` tells."""
        self._writer.write(_frame(call))

    async def replies(self) -> AsyncGenerator[StepReply]:
        """Yield the reply of each step until the verifier is gone; then close the stream."""
        try:
            while isinstance(reply := await _read(self._reader), StepReply):
                yield reply
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._writer.transport.abort()
            with suppress(OSError):
                await self._writer.wait_closed()
