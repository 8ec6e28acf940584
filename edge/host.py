"""Runs a drafter's engine for several generations: their sessions, the engine's thread, and what a drafter is asked.

Only the engine's thread touches the engine: the event loop queues *acts* for it, which it carries out between two
tokens. Requests that arrive while the engine is busy so join its batch.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from outrider.contracts.drafting import (
    Draft,
    DraftAnswer,
    DrafterEngine,
    DraftPlan,
    DraftRequest,
    DraftTerms,
)
from outrider.contracts.errors import (
    ChecksumError,
    DrafterBrokenError,
    DraftingFailedError,
    MessageError,
    OutriderError,
    VocabularyMismatchError,
)
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.link import Direction
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.engines.drafter.base import check_fits
from outrider.engines.drafter.contained import ContainedDrafts, DraftStep
from outrider.engines.engine_beat import EngineBeat
from outrider.protocols.registry import PLAINEST
from outrider.session.session import DrafterSession, payload_bits
from outrider.wire.bits import id_bits
from outrider.wire.calls import MOST_PROBE_BYTES, read_call
from outrider.wire.replies import Answer, DrafterCard, DrafterHoldings, SentSegments, plain, plain_failure

_HUNG_S = 60.0  # no step of a healthy engine takes as long
_PROOF, _PROOF_IDS = "proof", (0, 1)  # name and prompt of the generation that ``prove`` drafts for

_Act = tuple[Callable[[], None], asyncio.Future[None]]


async def at_once(_direction: Direction, _bits: int) -> None:
    """Carry a payload over a link that nothing emulates."""


class DrafterHost:
    """Holds a draft model's engine and the sessions of the generations that it drafts for."""

    def __init__(
        self,
        engine: DrafterEngine,
        card: DrafterCard,
        thread: Executor,
        *,
        may_stop: bool = False,
        carry: Callable[[Direction, int], Awaitable[None]] = at_once,
        sent: Callable[[], SentSegments] = SentSegments,
    ) -> None:
        """Take over an engine that was made in ``thread``, which has one thread.

        Args:
            engine: drafts.
            card: of its model.
            thread: alone calls the engine.
            may_stop: whether a stop rule may end a chain before its first token.
            carry: returns once so many bits have crossed an emulated link.
            sent: returns the TCP segments that this process has sent to its callers.
        """
        self._engine, self._card, self._thread = engine, card, thread
        self._may_stop, self._carry, self._sent = may_stop, carry, sent
        self._drafts, self._beat = ContainedDrafts(engine), EngineBeat()
        self._proofs = 0
        self._sessions: dict[GenerationId, DrafterSession] = {}
        self._acts: list[_Act] = []
        self._acts_lock = threading.Lock()
        self._working = False
        self._waiting: dict[tuple[GenerationId, int], asyncio.Future[DraftAnswer]] = {}
        self._fault: Exception | None = None

    async def answer(self, call: bytes) -> bytes:
        """Carry out a call (``outrider.wire.calls``) and return its reply, or its error, as plain bytes."""
        try:
            return await self.carry_out(*read_call(call))
        except MessageError as error:
            return plain_failure(error)

    async def carry_out(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        """Carry out a call that was read."""
        try:
            return plain(await getattr(self, method)(*arguments))
        except Exception as error:  # noqa: BLE001 (sent to the caller as bytes)
            return plain_failure(error)

    async def card(self) -> DrafterCard:
        """Return the model's card. This is also the liveness probe; the event loop answers it while the engine runs.

        Raises:
            Exception: the error that broke the engine; the actor is of no further use.
            DrafterBrokenError: the engine has been in one step for over a minute.
        """
        self._check()
        return self._card

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault
        if (busy_s := self._beat.busy_s) > _HUNG_S:
            raise DrafterBrokenError(f"needs a responsive engine, found it in one step for {busy_s:.0f} s")

    async def prove(self) -> None:
        """Draft a token as for a generation, which proves that the engine works."""
        self._proofs += 1
        name, params = f"{_PROOF}-{self._proofs}", SamplingParams(temperature=0.0)
        prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, _PROOF_IDS)
        request = DraftRequest(name, 0, len(_PROOF_IDS), (), prefix_hash, DraftPlan(PLAINEST, 1))
        terms = DraftTerms(WireFormat(self._card.vocab_size))
        try:
            await self._apply(partial(self._engine.open, OpenGeneration(name, _PROOF_IDS, params), terms))
            drafted = await self._drafted(request)
        finally:
            await self._apply(partial(self._engine.close, name))
        # A rule that stops before the token has seen the row it would be drawn from: the engine works.
        proofs = (0, 1) if self._may_stop else (1,)
        if not isinstance(drafted, Draft) or len(drafted.token_ids) not in proofs:
            raise DrafterBrokenError(f"needs to draft a token to prove itself, found {drafted!r:.100}")

    async def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """Open a generation at the engine.

        Raises:
            ContextTooLongError: the generation can never fit this drafter.
            VocabularyMismatchError: its token ids are of another vocabulary; some might not be in the model.
        """
        if terms.wire.vocab_size != self._card.vocab_size:
            raise VocabularyMismatchError(
                f"needs token ids of a vocabulary of {self._card.vocab_size}, found {terms.wire.vocab_size}; draft for "
                "the drafter's own target"
            )
        token_ids, most = (*request.prompt_ids, *request.output_ids), self._card.max_context_tokens
        check_fits(len(token_ids), most)  # before they are hashed, on the event loop
        self._supersede(request.generation)
        session = DrafterSession(terms.wire, request.generation, token_ids, most)
        self._sessions[request.generation] = session
        await self._carry(Direction.DOWN, len(token_ids) * id_bits(terms.wire.vocab_size))
        if self._sessions.get(request.generation) is not session:
            return  # closed, or opened again, while the message was on its way
        try:
            await self._apply(partial(self._engine.open, request, terms))
        except OutriderError:
            self._sessions.pop(request.generation, None)
            raise

    async def exchange(self, generation: GenerationId, order: bytes) -> Answer:
        """Carry out an order and return the answer. A window of 0 only computes the KV of what was committed.

        A repeated order gets the same answer. One that cannot be read, or assumes another prefix, is answered by asking
        for the prefix.

        Raises:
            MessageError: the order is valid but cannot be carried out.
        """
        await self._carry(Direction.DOWN, payload_bits(order))
        arrived_at_s = time.monotonic()
        data = await self._answered(generation, order)
        drafter_s = time.monotonic() - arrived_at_s
        await self._carry(Direction.UP, payload_bits(data))
        return Answer(data, drafter_s)

    async def probe(self, sent: bytes, reply_bytes: int) -> Answer:
        """Return ``reply_bytes`` zero bytes (64 MiB at most) over the same link, without the engine."""
        await self._carry(Direction.DOWN, payload_bits(sent))
        data = bytes(min(reply_bytes, MOST_PROBE_BYTES))
        await self._carry(Direction.UP, payload_bits(data))
        return Answer(data, 0.0)

    async def held(self) -> DrafterHoldings:
        """Return the generations in memory, and the TCP segments sent so far."""
        self._check()
        return DrafterHoldings(tuple(self._sessions), *self._sent())

    async def close(self, generation: GenerationId) -> None:
        """Drop a generation; cancel an exchange that still waits for its draft."""
        self._sessions.pop(generation, None)
        self._supersede(generation)
        await self._apply(partial(self._engine.close, generation))

    def _supersede(self, generation: GenerationId) -> None:
        """Cancel exchanges of a generation that wait for a draft which the engine will not make any more."""
        for (name, _), answer in self._waiting.items():
            if name == generation:
                answer.cancel()

    async def _answered(self, generation: GenerationId, order: bytes) -> bytes:
        session = self._sessions.get(generation)
        if session is None:
            return b""
        try:
            known = session.answer_at_once(order)
            if known is not None:
                return known
            request = session.decode_order(order)
        except ChecksumError:
            return b""
        return session.encode_answer(await self._drafted(request))

    async def _drafted(self, request: DraftRequest) -> DraftAnswer:
        key = (request.generation, request.round)
        answer: asyncio.Future[DraftAnswer] = asyncio.get_running_loop().create_future()
        self._supersede(request.generation)  # the coordinator does not wait for the answer to an earlier order
        self._waiting[key] = answer
        try:
            await self._apply(partial(self._engine.submit, request))
            return await answer
        finally:
            if self._waiting.get(key) is answer:
                del self._waiting[key]
            if answer.done() and not answer.cancelled():
                answer.exception()  # or asyncio would log that it was never retrieved

    async def _apply(self, act: Callable[[], None]) -> None:
        """Run ``act`` on the engine's thread between two steps; raise its error."""
        if self._fault is not None:
            raise self._fault
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        with self._acts_lock:
            self._acts.append((act, done))
            begin, self._working = not self._working, True
        if begin:
            self._thread.submit(self._work, loop)
        await done

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Carry out acts and step until neither is left. Runs on the engine's thread."""
        while True:
            with self._acts_lock:  # one section: else an act queued between the test and the flag would never run
                acts, self._acts = self._acts, []
                if not acts and not self._engine.busy:
                    self._working = False
                    return
            try:
                with self._beat.working():
                    errors = [_attempt(act) for act, _ in acts]
                    made = self._drafts.step() if self._engine.busy else DraftStep()
            except Exception as error:  # noqa: BLE001 (``_broke`` raises it for every caller)
                loop.call_soon_threadsafe(self._broke, [done for _, done in acts], error)
                return
            if acts or made.answers or made.failed:
                dones = [(done, error) for (_, done), error in zip(acts, errors, strict=True)]
                loop.call_soon_threadsafe(self._resolve, dones, made)

    def _resolve(self, dones: list[tuple[asyncio.Future[None], Exception | None]], made: DraftStep) -> None:
        """Resolve the futures of acts and drafts after a step. Runs on the event loop."""
        for name, reason in made.failed.items():
            self._sessions.pop(name, None)
            for (generation, _), asked in self._waiting.items():
                if generation == name and not asked.done():
                    asked.set_exception(DraftingFailedError(f"drafting for {name} fails: {reason}"))
        for done, error in dones:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        for answer in made.answers:
            waiting = self._waiting.get((answer.generation, answer.round))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def _broke(self, dones: list[asyncio.Future[None]], error: Exception) -> None:
        self._fault = error
        with self._acts_lock:
            dones += [done for _, done in self._acts]
        futures: list[asyncio.Future[Any]] = [*dones, *self._waiting.values()]
        for future in futures:
            if not future.done():
                future.set_exception(error)


def _attempt(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 (``_apply`` of this act's caller raises it)
        return error
    return None
