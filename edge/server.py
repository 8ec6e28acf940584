"""Answers coordinators' calls of a drafter over streams, as many at a time as have room in memory.

What calls hold is bounded for each connection and for all together, whoever is at the other end: a call is read when
there is room for it and the replies before it are on their way, and has to come within a minute.

A connection holds no state: a coordinator that comes back sends again what was not answered, and a repeated order gets
the answer it had. Generations end when they are closed.
"""

import asyncio
import logging
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from typing import Any

from edge.byte_budget import ByteBudget
from edge.frames import check_length, frame, read_head
from edge.host import DrafterHost
from outrider.contracts.errors import MessageError
from outrider.events import event
from outrider.wire.calls import read_call
from outrider.wire.replies import plain_failure

MOST_CONNECTIONS = 16
MOST_DEVICE_PROBE_BYTES = 2**21  # none that measures a link is larger (``link.state.MAX_PROBE_BITS``)
MOST_CALL_BYTES = MOST_DEVICE_PROBE_BYTES + 4096
_CONNECTION_BYTES, _PROCESS_BYTES = 2 * MOST_CALL_BYTES, 8 * MOST_CALL_BYTES  # of calls that are not answered yet
_SMALL_BYTES, _LARGE_REPLIES = 2**14, 4  # a probe's reply is large from there on, and so many are made at a time
_PATIENCE_S = 60.0  # with a call that is being sent, and a reply that is being read

log = logging.getLogger(__name__)


class HostServer:
    """``serve`` is the callback of ``asyncio.start_server`` and ``start_unix_server``."""

    def __init__(self, host: DrafterHost) -> None:
        self._host, self._serving = host, 0
        self._budget, self._large = ByteBudget(_PROCESS_BYTES), asyncio.Semaphore(_LARGE_REPLIES)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the other side leaves, stands still, or sends what is no frame."""
        if self._serving >= MOST_CONNECTIONS:
            event(log, "calls_unreadable", logging.WARNING, reason=f"needs at most {MOST_CONNECTIONS} connections")
            writer.transport.abort()
            return
        answering, share = set[asyncio.Task[None]](), ByteBudget(_CONNECTION_BYTES)
        self._serving += 1
        try:
            while True:
                async with asyncio.timeout(_PATIENCE_S):
                    await writer.drain()
                number, length = await read_head(reader)
                check_length(number, length, MOST_CALL_BYTES)
                with ExitStack() as held:
                    for budget in (share, self._budget):
                        held.callback(budget.give_back, await budget.take(length))
                    async with asyncio.timeout(_PATIENCE_S):
                        call = await reader.readexactly(length)
                    task = asyncio.create_task(self._answer(writer, number, call))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
                    task.add_done_callback(partial(_end, held.pop_all()))
        except MessageError as error:
            event(log, "calls_unreadable", logging.WARNING, reason=str(error))
        except (OSError, asyncio.IncompleteReadError):
            pass  # it left, or stood still (``TimeoutError`` is an ``OSError``)
        finally:
            self._serving -= 1
            for task in tuple(answering):
                task.cancel()
            writer.transport.abort()  # ``close`` would wait until the other side has read what is buffered
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, writer: asyncio.StreamWriter, number: int, call: bytes) -> None:
        try:
            method, arguments, reply_bytes = _read(call)
        except MessageError as error:
            await _write(writer, frame(number, plain_failure(error)))
            return
        async with self._large if reply_bytes > _SMALL_BYTES else nullcontext():
            await _write(writer, frame(number, await self._host.carry_out(method, arguments)))


def _read(call: bytes) -> tuple[str, tuple[Any, ...], int]:
    """Return method, arguments, and the bytes that a probe asks for."""
    method, arguments = read_call(call)
    asked = arguments[1] if method == "probe" else 0
    if asked > MOST_DEVICE_PROBE_BYTES:
        raise MessageError(f"needs a probe of at most {MOST_DEVICE_PROBE_BYTES} bytes, found {asked}")
    return method, arguments, asked


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        writer.write(data)
        async with asyncio.timeout(_PATIENCE_S):
            await writer.drain()
    except OSError:  # it left, or does not read
        if not writer.is_closing():
            writer.transport.abort()


def _end(held: ExitStack, _: "asyncio.Task[None]") -> None:
    held.close()
