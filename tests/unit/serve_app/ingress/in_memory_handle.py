"""Coordinators behind a Serve handle, in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from ray.exceptions import RayError

from outrider.contracts.errors import GenerationFailedError
from outrider.contracts.requests import GenerationId, GenerationRequest
from serve_app.coordination.generations.outlets import Message, Outlets
from serve_app.coordination.listener import Listener
from tests.unit.serve_app.api.in_memory_coordinators import Coordinators
from tests.unit.serve_app.coordination.in_memory import until
from tests.unit.virtual_clock import now_s

T = TypeVar("T")


class Stream(Generic[T]):
    """What a call of a streaming handle gives."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self.closing: asyncio.Task[None] | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate."""
        return self._items

    def cancel(self) -> None:
        """Nobody reads on; the coordinator learns of it soon."""
        self.closing = asyncio.ensure_future(self._items.aclose())


class Method(Generic[T]):
    """One of a deployment's."""

    def __init__(self, call: Callable[..., AsyncGenerator[T, None]]) -> None:
        self._call = call
        self.streams: list[Stream[T]] = []

    def remote(self, *args: object) -> Stream[T]:
        """Call it."""
        self.streams.append(Stream(self._call(*args)))
        return self.streams[-1]


class Call:
    """One that is no stream."""

    def __init__(self, call: Callable[..., Awaitable[None]]) -> None:
        self._call = call

    def remote(self, *args: object) -> Awaitable[None]:
        """Call it."""
        return self._call(*args)


class MemoryHandle:
    """A deployment handle as far as an ingress uses one. Every attempt is a coordinator's of its own, unless named."""

    def __init__(self, *losses: tuple[int, Exception], coordinator: str | None = None) -> None:
        self.coordinators = Coordinators(*losses)
        self.broken: Exception | None = None  # raised by streams of chunks
        self._named = coordinator
        self.asked: list[dict[str, bool]] = []
        self.generate, self.chunks = Method(self._generate), Method(self._chunks)
        self.lost: list[tuple[str, ...]] = []  # what each call said of who had lost a verifier
        self.listening = 0  # streams of chunks
        self.told = 0  # tokens
        self.read, self.deaf = Call(self._read), 0  # calls that fail from now on
        self.out_of_reach: set[str] = set()  # coordinators that another one is asked for, which says so
        self.goes_on = asyncio.Event()  # else coordinators stand still
        self.goes_on.set()
        self._outlets: dict[str, Outlets] = {}

    def options(self, **options: bool) -> "MemoryHandle":
        """Note them."""
        self.asked.append(options)
        return self

    async def _generate(
        self, record: GenerationRequest, ingress: str, lost: tuple[str, ...]
    ) -> AsyncGenerator[str, None]:
        self.lost.append(lost)
        name = self._named or f"coordinator {len(self._outlets)}"
        outlets = self._outlets.setdefault(name, Outlets(now_s))
        yield name
        with outlets.of(ingress).response(record.generation) as (put, credit):
            async with aclosing(self.coordinators.attempt(record)) as chunks:
                async for chunk in chunks:
                    await credit.restored()
                    await self.goes_on.wait()
                    put(chunk)
                    self.told += len(chunk.token_ids)

    async def _read(self, listener: Listener, tokens: Mapping[GenerationId, int]) -> None:
        await self.goes_on.wait()
        if self.deaf:
            self.deaf -= 1
            raise RayError("not now")
        if listener.coordinator in self.out_of_reach:
            raise GenerationFailedError("it is gone")
        self._outlets[listener.coordinator].of(listener.ingress).read(tokens)

    async def _chunks(self, listener: Listener) -> AsyncGenerator[Message, None]:
        self.listening += 1
        try:
            async with aclosing(self._outlets[listener.coordinator].of(listener.ingress).messages()) as messages:
                async for message in messages:
                    yield message
                    if self.broken is not None:
                        raise self.broken
        finally:
            self.listening -= 1

    async def closed(self) -> None:
        """Every call was cancelled or has ended, its coordinator holds nothing, and nobody listens any more."""
        await until(lambda: all(stream.closing is not None for stream in self.generate.streams))
        for stream in self.generate.streams:
            assert stream.closing is not None
            await stream.closing
        await until(lambda: self.listening == 0)
