"""Chunks of responses at an ingress: one stream from each coordinator brings those of all responses it makes."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from actors.ray_errors import cause_of
from actors.waiting import within
from outrider.contracts.errors import (
    CoordinatorDrainingError,
    CoordinatorSilentError,
    OutriderError,
    VerifierAwayError,
    VerifierLostError,
)
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest
from serve_app.coordination.credit import MOST_UNREAD_TOKENS
from serve_app.coordination.listener import Listener
from serve_app.coordinator_watch import CoordinatorWatch
from serve_app.fair_gate import FairGate

_TELL_TOKENS = MOST_UNREAD_TOKENS // 2  # a coordinator is told of what was read as often
_TELL_AGAIN_S, _TELL_AGAIN_AT_MOST_S = 0.1, 2.0
_LOST_FOR_S = 5.0  # longer than routers take to learn of a verifier that is gone
_LEAVES_EVERY_S = 1.0
_ANSWERS_WITHIN_S = 0.75  # a coordinator that is well
_ROUTED, _WAIT_FOR_ROUTING = 64, 1024  # responses that no coordinator has yet


class _ChunkQueue:
    """What has come of one response, for the one task that reads it: a queue would keep a list of who waits."""

    __slots__ = ("_begun", "_pieces", "_waiter")

    def __init__(self) -> None:
        self._pieces: deque[GenerationChunk | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._begun = False

    @property
    def waits(self) -> bool:
        """Whether the response was begun, and all that came of it was read."""
        return self._begun and not self._pieces and self._waiter is not None and not self._waiter.done()

    def put(self, piece: GenerationChunk | Exception) -> None:
        self._begun = True
        self._pieces.append(piece)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> GenerationChunk | Exception:
        while not self._pieces:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._pieces.popleft()


class CoordinatorStreams:
    """Behind a Serve handle. Chunks are small: they travel by value, which saves a store access.

    Calls that are meant for one coordinator belong to no HTTP request: see ``request_router``.
    """

    def __init__(
        self,
        coordinator: DeploymentHandle[Any],
        elsewhere: Callable[[str], Awaitable[bool]],
        should_migrate: Callable[[str], bool],
    ) -> None:
        """Hear nobody yet.

        Args:
            coordinator: the deployment.
            elsewhere: whether any coordinator but this one can make responses now.
            should_migrate: whether something that this one makes goes on elsewhere now, as it is drained.
        """
        self._elsewhere, self._should_migrate = elsewhere, should_migrate
        self._routing = FairGate(_ROUTED, _WAIT_FOR_ROUTING)
        self._name = uuid.uuid4().hex[:12]
        self._coordinators = coordinator.options(_by_reference=False)
        self._calls = coordinator.options(_by_reference=False, stream=True)
        self._mailboxes: dict[GenerationId, _ChunkQueue] = {}
        self._made_by: dict[GenerationId, str] = {}
        self._read: dict[GenerationId, int] = {}  # tokens that were read, of responses whose coordinator is to know
        self._lost_at_s: dict[str, float] = {}  # coordinators by when they were without a verifier, in this order
        self._reporting: dict[str, asyncio.Task[None]] = {}
        self._hearing: dict[str, asyncio.Task[None]] = {}

    async def chunks(self, record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Have some coordinator make a response, or go on with it. Closing the generator cancels it.

        Raises:
            Exception: what ended the coordinator's part in it.
        """
        name, mailbox = record.generation, _ChunkQueue()
        self._mailboxes[name] = mailbox
        making = asyncio.create_task(self._make(record, mailbox))
        try:
            finished, read, acknowledged = False, 0, 0
            while not finished:
                chunk = await mailbox.next()
                if isinstance(chunk, Exception):
                    self._note_lost(name, chunk)
                    raise chunk
                finished = chunk.finish_reason is not None
                yield chunk
                read += len(chunk.token_ids)
                if read - acknowledged >= _TELL_TOKENS:
                    acknowledged = read
                    self._read[name] = read
                    if (coordinator := self._made_by.get(name)) is not None:
                        self._tell_soon(coordinator)
        finally:
            del self._mailboxes[name]
            self._made_by.pop(name, None)
            self._read.pop(name, None)
            making.cancel()

    async def _make(self, record: GenerationRequest, mailbox: _ChunkQueue) -> None:
        """Ask for it. The call gives the coordinator's name first, and ends with the response.

        A turn is kept until the coordinator has taken the call up, or ended it for a client that has gone meanwhile:
        whoever asks and goes has no more calls before coordinators than whoever stays.
        """
        loop = asyncio.get_running_loop()
        call: Any = None  # a DeploymentResponseGenerator
        first: asyncio.Future[str] | None = None
        try:
            release = await self._routing.enter(record.account.name)
            loop.call_later(_ANSWERS_WITHIN_S, release)  # one that stands still holds nobody else up
            call = self._calls.generate.remote(record, self._name, self._lost())
            replies = aiter(call)
            first = asyncio.ensure_future(anext(replies))
            first.add_done_callback(lambda _: release())
            coordinator = await asyncio.shield(first)
            self._made_by[record.generation] = coordinator
            self._hear(coordinator)
            self._tell_soon(coordinator)
            async for _ in replies:
                pass
        except Exception as error:  # noqa: BLE001 (raised where the response is read)
            mailbox.put(error)
        finally:
            if call is not None:
                with suppress(RayError, RayServeException):  # of a call that failed, cancel() raises it once more
                    call.cancel()
            if first is not None:
                first.add_done_callback(_ended)
                loop.call_later(_ANSWERS_WITHIN_S, first.cancel)

    def _note_lost(self, generation: GenerationId, error: Exception) -> None:
        """Others are asked from now on; soon the routers will have been told."""
        coordinator = self._made_by.get(generation)
        if coordinator is not None and isinstance(cause_of(error), VerifierLostError | VerifierAwayError):
            self._lost_at_s.pop(coordinator, None)
            self._lost_at_s[coordinator] = asyncio.get_running_loop().time()

    def _lost(self) -> tuple[str, ...]:
        since_s = asyncio.get_running_loop().time() - _LOST_FOR_S
        self._lost_at_s = {name: at_s for name, at_s in self._lost_at_s.items() if at_s > since_s}
        return tuple(self._lost_at_s)

    def _tell_soon(self, coordinator: str) -> None:
        if coordinator not in self._reporting:
            self._reporting[coordinator] = asyncio.create_task(self._tell_read(coordinator), context=Context())

    async def _tell_read(self, coordinator: str) -> None:
        """Tell one coordinator what was read; until it is told, its responses are held up."""
        again_s = _TELL_AGAIN_S
        try:
            while read := {
                name: acknowledged
                for name, acknowledged in self._read.items()
                if self._made_by.get(name) == coordinator
            }:
                reporting: Any = self._coordinators.read.remote(Listener(self._name, coordinator), read)
                try:
                    await within(_ANSWERS_WITHIN_S, reporting)
                except (TimeoutError, RayError, RayServeException, OutriderError):
                    await asyncio.sleep(again_s)
                    again_s = min(2.0 * again_s, _TELL_AGAIN_AT_MOST_S)
                else:
                    again_s = _TELL_AGAIN_S
                    self._read = {name: tokens for name, tokens in self._read.items() if read.get(name) != tokens}
        finally:
            del self._reporting[coordinator]

    def _hear(self, coordinator: str) -> None:
        if coordinator not in self._hearing:
            self._hearing[coordinator] = asyncio.create_task(self._hear_all(coordinator), context=Context())

    async def _hear_all(self, coordinator: str) -> None:
        """Hand out what the coordinator tells, as long as it makes anything for this ingress."""
        watch = CoordinatorWatch(partial(self._answers, coordinator), partial(self._elsewhere, coordinator))
        watching = [
            asyncio.create_task(self._doubt(coordinator, watch)),
            asyncio.create_task(self._detach(coordinator)),
        ]
        try:
            while coordinator in self._made_by.values():
                messages: Any = self._calls.chunks.remote(Listener(self._name, coordinator))
                async for message in messages:
                    watch.heard()
                    for name, piece in message:
                        if (mailbox := self._mailboxes.get(name)) is not None:
                            mailbox.put(piece)
        except Exception as error:  # noqa: BLE001 (raised where the responses are read)
            self._fail(coordinator, error)
        finally:
            for task in watching:
                task.cancel()
            del self._hearing[coordinator]

    async def _doubt(self, coordinator: str, watch: CoordinatorWatch) -> None:
        """Have what it makes go on elsewhere whenever it is silent."""
        while True:
            await watch.is_silent()
            self._fail(coordinator, CoordinatorSilentError(f"needs a word of coordinator {coordinator}, found none"))

    async def _detach(self, coordinator: str) -> None:
        """Have what it makes go on elsewhere once it may, one after the other, as each costs a prefill there.

        What was not begun stays: it would wait anew. So does what has come and was not read yet: it is made already.
        """
        while True:
            await asyncio.sleep(_LEAVES_EVERY_S)
            if not self._should_migrate(coordinator):
                continue
            ready = [name for name in self._made_at(coordinator) if self._mailboxes[name].waits]
            if ready:
                self._mailboxes[ready[-1]].put(CoordinatorDrainingError(f"coordinator {coordinator} is drained"))

    def _fail(self, coordinator: str, error: Exception) -> None:
        for name in self._made_at(coordinator):
            self._mailboxes[name].put(error)

    def _made_at(self, coordinator: str) -> list[GenerationId]:
        """Oldest first, which are those that may end soonest."""
        return [name for name, by in self._made_by.items() if by == coordinator]

    async def _answers(self, coordinator: str) -> bool:
        try:
            await within(_ANSWERS_WITHIN_S, self._coordinators.read.remote(Listener(self._name, coordinator), {}))
        except TimeoutError:
            return False
        except (RayError, RayServeException, OutriderError):  # its stream will tell
            return True
        return True


def _ended(first: asyncio.Future[str]) -> None:
    """Of a call that nobody waits for any more: how it failed is of no matter."""
    if not first.cancelled():
        first.exception()
