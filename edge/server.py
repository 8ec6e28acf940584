"""Answers a coordinator's calls of a drafter over a stream, as many at a time as come.

A connection holds no state: a coordinator that comes back sends again what was not answered, and a repeated order gets
the answer it had. Generations end when they are closed.
"""

import asyncio
import logging
from contextlib import suppress

from edge.frames import frame, read_frame
from edge.host import DrafterHost
from outrider.contracts.errors import MessageError
from outrider.events import event
from outrider.wire.calls import MOST_CALL_BYTES

MOST_CALLS = 256  # of one connection at a time; what comes then waits in the stream

log = logging.getLogger(__name__)


class HostServer:
    """``serve`` is the callback of ``asyncio.start_server`` and ``start_unix_server``."""

    def __init__(self, host: DrafterHost) -> None:
        self._host = host

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the other side leaves, or sends what is no frame."""
        answering = set[asyncio.Task[None]]()
        free = asyncio.Semaphore(MOST_CALLS)
        try:
            while True:
                await free.acquire()
                number, call = await read_frame(reader, lambda _: MOST_CALL_BYTES)
                task = asyncio.create_task(self._answer(writer, number, call))
                answering.add(task)
                task.add_done_callback(answering.discard)
                task.add_done_callback(lambda _: free.release())
        except MessageError as error:
            event(log, "calls_unreadable", logging.WARNING, reason=str(error))
        except (OSError, asyncio.IncompleteReadError):
            pass  # it left
        finally:
            for task in tuple(answering):
                task.cancel()
            writer.transport.abort()  # ``close`` would wait until the other side has read what is buffered
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, writer: asyncio.StreamWriter, number: int, call: bytes) -> None:
        reply = await self._host.answer(call)
        with suppress(OSError):
            writer.write(frame(number, reply))
            await writer.drain()
