"""Chunks of several generations as one stream, each with a deadline."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self, TypeVar

from outrider.contracts.requests import GenerationChunk
from serve_app.api.service import ServiceSettings

_Item = TypeVar("_Item")


async def merged(sources: Sequence[AsyncGenerator[_Item, None]]) -> AsyncGenerator[tuple[int, _Item], None]:
    """Yield the items of all sources as they arrive, each with its source's index.

    The sources run concurrently. The first error of one is raised here; on an error, or when this generator is closed,
    all are closed. Little is buffered for a slow consumer.
    """
    if len(sources) == 1:  # most responses have one choice
        async with aclosing(sources[0]):
            async for item in sources[0]:
                yield 0, item
        return
    arrived: asyncio.Queue[tuple[int, _Item] | Exception | None] = asyncio.Queue(maxsize=len(sources))

    async def drain(index: int, source: AsyncGenerator[_Item, None]) -> None:
        end: Exception | None = None
        try:
            async with aclosing(source):
                async for item in source:
                    await arrived.put((index, item))
        except Exception as error:  # noqa: BLE001 - raised by the consumer
            end = error
        await arrived.put(end)

    tasks = [asyncio.create_task(drain(index, source)) for index, source in enumerate(sources)]
    try:
        running = len(tasks)
        while running:
            arrival = await arrived.get()
            if isinstance(arrival, Exception):
                raise arrival
            if arrival is None:
                running -= 1
            else:
                yield arrival
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def with_deadlines(
    chunks: AsyncGenerator[GenerationChunk, None], settings: ServiceSettings
) -> AsyncGenerator[GenerationChunk, None]:
    """Yield the same chunks; raise TimeoutError if one is late."""
    deadline_s, patience = settings.first_chunk_deadline_s, _ReusedTimer()
    try:
        async with aclosing(chunks):
            while True:
                with patience.of(deadline_s):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
                deadline_s = settings.next_chunk_deadline_s
    finally:
        patience.over()


class _ReusedTimer:
    """Consecutive waits of one task under one timer: a timer for each wait would cost as much as a chunk.

    The timer is set for the end of the first wait; when it fires during a later wait, it is set for that one's end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # the waiting one
        self._cancelling = 0  # cancellation requests before the wait
        self._until_s = 0.0
        self._expired = False

    def of(self, deadline_s: float) -> Self:
        """A context manager for a wait that raises TimeoutError after ``deadline_s``."""
        self._until_s = self._loop.time() + deadline_s
        return self

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None, "only tasks wait"
        if self._timer is None or self._timer.when() > self._until_s:
            self._set()
        self._cancelling = task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._expired and isinstance(error, asyncio.CancelledError):
            assert task is not None, "who waits has entered"
            if task.uncancel() <= self._cancelling:
                raise TimeoutError from error

    def over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        self.over()
        self._timer = self._loop.call_at(self._until_s, self._went_off)

    def _went_off(self) -> None:
        self._timer = None
        if self._task is None:  # the next wait sets it
            return
        if self._loop.time() < self._until_s:
            self._set()
        else:
            self._expired = True
            self._task.cancel()
