"""Chunks of several generations as one stream, each awaited no longer than it may take."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

from outrider.contracts.requests import GenerationChunk
from serve_app.api.service import ServiceSettings

_Item = TypeVar("_Item")


async def merged(sources: Sequence[AsyncGenerator[_Item, None]]) -> AsyncGenerator[tuple[int, _Item], None]:
    """The items of all sources as they come, each with its source's index.

    The sources run concurrently. The first error of one is raised here; with it, or when this generator is closed, all
    are closed. Little is read ahead of a consumer that is slow.
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
    """The same chunks; a TimeoutError if one is late."""
    deadline_s = settings.first_chunk_deadline_s
    async with aclosing(chunks):
        while True:
            async with asyncio.timeout(deadline_s):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
            deadline_s = settings.next_chunk_deadline_s
