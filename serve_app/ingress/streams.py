"""Receives chunks at an ingress: one stream per coordinator carries those of all responses that it makes for us.

Each response also has a Serve call of its own (``_make``): it names the coordinator, ends with the response and raises
its errors; cancelling it cancels the response. So Serve still counts, routes and refuses responses one by one.
"""

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
from actors.waiting import retrieve, within
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
from serve_app.ingress.fair_gate import FairGate

_TELL_TOKENS = MOST_UNREAD_TOKENS // 2  # tokens read between two reports of a response to its coordinator
_TELL_AGAIN_S, _TELL_AGAIN_AT_MOST_S = 0.1, 2.0
_LOST_FOR_S = 5.0  # longer than routers take to learn that a verifier is gone
_LEAVES_EVERY_S = 1.0
_SILENCE_S = 1.5  # time without a message of a coordinator that makes responses, after which it is probed
_ANSWERS_WITHIN_S = 0.75  # a coordinator that takes longer is silent
_ROUTED, _WAIT_FOR_ROUTING = 64, 1024  # responses that are being routed, and that wait to be


class _ChunkQueue:
    """Queue of one response's chunks with a single reader; ``asyncio.Queue`` would keep a list of waiters."""

    __slots__ = ("_begun", "_pieces", "_waiter")

    def __init__(self) -> None:
        self._pieces: deque[GenerationChunk | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._begun = False

    @property
    def waits(self) -> bool:
        """Whether the response has begun, every chunk was read, and the reader waits for the next."""
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


class CoordinatorWatch:
    """Finds that a coordinator is silent, so that its responses can resume elsewhere.

    One that hangs or is cut off may continue at any moment, and Serve ends it only after many seconds. Where another
    coordinator is ready, its responses need not wait for that: a wrong guess costs one prefill.
    """

    def __init__(self, answers: Callable[[], Awaitable[bool]], elsewhere: Callable[[], Awaitable[bool]]) -> None:
        """Start the silence now.

        Args:
            answers: probes the coordinator; False if it does not answer in time.
            elsewhere: returns whether another coordinator can make responses now.
        """
        self._answers, self._elsewhere = answers, elsewhere
        self.heard()

    def heard(self) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()

    async def wait_for_silence(self) -> None:
        """Return once the coordinator is silent, does not answer a probe, and another one is ready."""
        loop = asyncio.get_running_loop()
        while True:
            heard_at_s = self._heard_at_s
            await asyncio.sleep(heard_at_s + _SILENCE_S - loop.time())
            silent = self._heard_at_s == heard_at_s and not await self._answers() and await self._elsewhere()
            if self._heard_at_s != heard_at_s:
                continue
            self.heard()
            if silent:
                return


class CoordinatorStreams:
    """Streams over a Serve handle. Arguments travel by value: they are small, and that saves a store access.

    Tasks whose calls are meant for one coordinator run in an empty ``Context``, outside of any HTTP request: calls of
    one HTTP request share an id, and Serve's router could not tell them apart (see ``request_router``).
    """

    def __init__(
        self,
        coordinator: DeploymentHandle[Any],
        elsewhere: Callable[[str], Awaitable[bool]],
        should_migrate: Callable[[str], bool],
        routed: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Open no stream yet.

        ``elsewhere`` returns whether a coordinator other than the named one can make responses now, ``should_migrate``
        whether a response of the named one is to move now, as that is draining. ``routed`` is called with the seconds
        that a new response took to get to a coordinator.
        """
        self._elsewhere, self._should_migrate, self._routed = elsewhere, should_migrate, routed
        self._routing = FairGate(_ROUTED, _WAIT_FOR_ROUTING)
        self._name = uuid.uuid4().hex[:12]
        self._coordinators = coordinator.options(_by_reference=False)
        self._calls = coordinator.options(_by_reference=False, stream=True)
        self._mailboxes: dict[GenerationId, _ChunkQueue] = {}
        self._made_by: dict[GenerationId, str] = {}
        self._read: dict[GenerationId, int] = {}  # tokens read, of responses whose coordinator does not know yet
        self._lost_at_s: dict[str, float] = {}  # when a coordinator was last found without its verifier, oldest first
        self._reporting: dict[str, asyncio.Task[None]] = {}  # by coordinator, one task at most
        self._hearing: dict[str, asyncio.Task[None]] = {}  # likewise

    async def chunks(self, record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Begin or resume a response at some coordinator and yield its chunks. Closing the generator cancels it.

        Raises:
            Exception: the error that ended this coordinator's attempt; the caller may resume elsewhere.
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
        """Call a coordinator; the call yields the coordinator's name first and ends with the response.

        The turn of ``FairGate`` lasts until the coordinator has taken up the call, or has ended it after the client
        disconnected. So clients that connect and disconnect do not get more calls routed than others.
        """
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        call: Any = None  # a DeploymentResponseGenerator
        first: asyncio.Future[str] | None = None
        try:
            release = await self._routing.enter(record.account.name)
            loop.call_later(_ANSWERS_WITHIN_S, release)  # a coordinator that hangs must not use up the turns
            call = self._calls.generate.remote(record, self._name, self._lost())
            replies = aiter(call)
            first = asyncio.ensure_future(anext(replies))
            first.add_done_callback(lambda _: release())
            coordinator = await asyncio.shield(first)  # if this task is cancelled, ``first`` still ends the turn
            self._made_by[record.generation] = coordinator
            if not record.output_ids:
                self._routed(loop.time() - since_s)
            self._hear(coordinator)
            self._tell_soon(coordinator)
            async for _ in replies:
                pass
        except Exception as error:  # noqa: BLE001 (``chunks`` raises it)
            mailbox.put(error)
        finally:
            if call is not None:
                with suppress(RayError, RayServeException):  # cancel() of a call that failed raises its error again
                    call.cancel()
            if first is not None:
                first.add_done_callback(retrieve)
                loop.call_later(_ANSWERS_WITHIN_S, first.cancel)

    def _note_lost(self, generation: GenerationId, error: Exception) -> None:
        """Note a coordinator without its verifier: calls avoid it until the routers know of the loss themselves."""
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
        """Report to one coordinator what was read, and repeat until it answers: its responses wait for this credit."""
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
        """Distribute a coordinator's messages to the responses, as long as it makes any for this ingress."""
        watch = CoordinatorWatch(partial(self._answers, coordinator), partial(self._elsewhere, coordinator))
        watching = [
            asyncio.create_task(self._doubt(coordinator, watch)),
            asyncio.create_task(self._detach(coordinator)),
        ]
        try:
            while coordinator in self._made_by.values():  # again: the stream ends when idle, and a response may follow
                messages: Any = self._calls.chunks.remote(Listener(self._name, coordinator))
                async for message in messages:
                    watch.heard()
                    for name, piece in message:
                        if (mailbox := self._mailboxes.get(name)) is not None:
                            mailbox.put(piece)
        except Exception as error:  # noqa: BLE001 (``chunks`` of each response raises it)
            self._fail(coordinator, error)
        finally:
            for task in watching:
                task.cancel()
            del self._hearing[coordinator]

    async def _doubt(self, coordinator: str, watch: CoordinatorWatch) -> None:
        """Fail the coordinator's responses whenever it is silent, so that they resume elsewhere."""
        while True:
            await watch.wait_for_silence()
            self._fail(coordinator, CoordinatorSilentError(f"needs a reply of coordinator {coordinator}, found none"))

    async def _detach(self, coordinator: str) -> None:
        """Move responses away from a draining coordinator, one per second, as each costs a prefill elsewhere.

        A response that has not begun stays, as it would have to queue again. So does one with unread chunks.
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
        """Return the coordinator's responses, oldest first; the oldest may end soonest, so the newest move first."""
        return [name for name, by in self._made_by.items() if by == coordinator]

    async def _answers(self, coordinator: str) -> bool:
        try:
            await within(_ANSWERS_WITHIN_S, self._coordinators.read.remote(Listener(self._name, coordinator), {}))
        except TimeoutError:
            return False
        except (RayError, RayServeException, OutriderError):  # not silent: its stream raises this, too
            return True
        return True
