"""Answers calls within bounds of memory, whoever sends them and however slowly replies are read."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

from edge.byte_budget import ByteBudget
from edge.host import DrafterHost
from outrider.contracts.errors import MessageError
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES, MOST_DEVICE_PROBE_BYTES, read_call
from outrider.wire.replies import plain_failure

PATIENCE_S = 60.0  # with a call that is being sent, and a reply that is being read
_CONNECTION_BYTES = 2 * MOST_DEVICE_CALL_BYTES  # of calls that are not answered yet
_PROCESS_BYTES = 8 * MOST_DEVICE_CALL_BYTES  # likewise
_SMALL_BYTES, _LARGE_REPLIES = 2**14, 4  # a probe's reply is large from there on, and so many are made at a time


class AnswerBounds:
    """Of all connections of a process."""

    def __init__(self) -> None:
        self.budget, self.large = ByteBudget(_PROCESS_BYTES), asyncio.Semaphore(_LARGE_REPLIES)


class Answering:
    """Calls of one connection that are not answered yet."""

    def __init__(self, host: DrafterHost, bounds: AnswerBounds, write: Callable[[int, bytes], Awaitable[None]]) -> None:
        """``write`` sends the reply of a call by its number, and returns once it is on its way."""
        self._host, self._bounds, self._write = host, bounds, write
        self._share, self._tasks = ByteBudget(_CONNECTION_BYTES), set[asyncio.Task[None]]()

    async def room(self, length: int) -> ExitStack:
        """Wait until there is room for a call; the stack gives it back."""
        with ExitStack() as held:
            for budget in (self._share, self._bounds.budget):
                held.callback(budget.give_back, await budget.take(length))
            return held.pop_all()

    def answer(self, number: int, call: bytes, held: ExitStack) -> None:
        """Answer a call, and give back its room then."""
        task = asyncio.create_task(self._answer(number, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(partial(_end, held))

    async def finish(self, within_s: float) -> None:
        """Wait so long for calls to be answered."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def _answer(self, number: int, call: bytes) -> None:
        try:
            method, arguments, large = _read(call)
        except MessageError as error:
            await self._write(number, plain_failure(error))
            return
        async with self._bounds.large if large else nullcontext():
            await self._write(number, await self._host.carry_out(method, arguments))


def _read(call: bytes) -> tuple[str, tuple[Any, ...], bool]:
    """Return method, arguments, and whether the reply may be large."""
    method, arguments = read_call(call)
    asked = arguments[1] if method == "probe" else 0
    if asked > MOST_DEVICE_PROBE_BYTES:
        raise MessageError(f"needs a probe of at most {MOST_DEVICE_PROBE_BYTES} bytes, found {asked}")
    return method, arguments, method == "held" or asked > _SMALL_BYTES


def _end(held: ExitStack, _: "asyncio.Task[None]") -> None:
    held.close()
