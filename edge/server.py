"""Answers coordinators' calls of a drafter over streams, as many at a time as have room in memory.

What calls hold is bounded for each connection and for all together, whoever is at the other end: a call is read when
there is room for it and the replies before it are on their way, and has to come within a minute.

A connection holds no state: a coordinator that comes back sends again what was not answered, and a repeated order gets
the answer it had. Generations end when they are closed.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from edge.answering import PATIENCE_S, AnswerBounds, Answering
from edge.frames import check_length, frame, read_head
from edge.host import DrafterHost
from outrider.contracts.errors import MessageError
from outrider.events import event
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES

MOST_CONNECTIONS = 16

log = logging.getLogger(__name__)


class HostServer:
    """``serve`` is the callback of ``asyncio.start_server`` and ``start_unix_server``."""

    def __init__(self, host: DrafterHost, most_connections: int = MOST_CONNECTIONS) -> None:
        self._host, self._serving, self._most, self._bounds = host, 0, most_connections, AnswerBounds()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the other side leaves, stands still, or sends what is no frame."""
        if self._serving >= self._most:
            event(log, "calls_unreadable", logging.WARNING, reason=f"needs at most {self._most} connections")
            writer.transport.abort()
            return
        answering = Answering(self._host, self._bounds, partial(_write, writer))
        self._serving += 1
        try:
            while True:
                async with asyncio.timeout(PATIENCE_S):
                    await writer.drain()
                number, length = await read_head(reader)
                check_length(number, length, MOST_DEVICE_CALL_BYTES)
                with await answering.room(length) as held:
                    async with asyncio.timeout(PATIENCE_S):
                        call = await reader.readexactly(length)
                    answering.answer(number, call, held.pop_all())
        except MessageError as error:
            event(log, "calls_unreadable", logging.WARNING, reason=str(error))
        except (OSError, asyncio.IncompleteReadError):
            pass  # it left, or stood still (``TimeoutError`` is an ``OSError``)
        finally:
            self._serving -= 1
            answering.cancel()
            writer.transport.abort()  # ``close`` would wait until the other side has read what is buffered
            with suppress(OSError):
                await writer.wait_closed()


async def _write(writer: asyncio.StreamWriter, number: int, reply: bytes) -> None:
    try:
        writer.write(frame(number, reply))
        async with asyncio.timeout(PATIENCE_S):
            await writer.drain()
    except OSError:  # it left, or does not read
        if not writer.is_closing():
            writer.transport.abort()
