"""Drafter actor: runs a draft model on an edge device for several generations in one batched engine.

It is a plain class; the fleet wraps it with ``ray.remote`` and its group's resources. Only the engine's thread touches
the engine: the event loop queues *acts* for it, which it carries out between two tokens. Requests that arrive while the
engine is busy so join its batch.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from actors.drafter.round_log import RoundFiles, RoundLogWriter
from actors.sent_up import SentMeter
from actors.start import started, starting
from actors.tcp_counts import answered
from outrider.assembly.drafters import build_drafter, log_header
from outrider.assembly.links import link_source
from outrider.config.drafters import LinkConfig
from outrider.contracts.drafting import Draft, DraftAnswer, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import ChecksumError, DrafterBrokenError, DraftingFailedError, OutriderError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.link import Direction
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId, SamplingParams
from outrider.contracts.verifying import KvUsage, OpenGeneration
from outrider.engines.drafter.contained import ContainedDrafts, DraftStep
from outrider.engines.engine_beat import EngineBeat
from outrider.engines.kinds import DrafterSpec
from outrider.events import write_events
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import LinkProfile
from outrider.link.trace import LinkSource
from outrider.protocols.registry import PLAINEST
from outrider.session.session import DrafterSession, payload_bits
from outrider.wire.bits import id_bits
from outrider.wire.replies import Answer, DrafterCard, DrafterHoldings, plain, plain_failure

_PLAIN = frozenset({"card", "prove", "open", "exchange", "probe", "held", "close", "forget"})
_MOST_PROBE_BYTES = 64 * 2**20
_HUNG_S = 60.0  # no step of a healthy engine takes as long
_PROOF, _PROOF_IDS = "proof", (0, 1)  # name and prompt of the generation that ``prove`` drafts for

_Act = tuple[Callable[[], None], asyncio.Future[None]]


class DrafterActor:
    """Holds a draft model and the KV of the generations leased to it."""

    def __init__(self, spec: DrafterSpec, link: LinkConfig | None = None, index: int = 0) -> None:
        """Load the draft model; tokenizer and token map come from the target's files.

        ``index`` is the drafter's number in its group; it seeds the noise of the emulated link.
        """
        starting()
        # Here, so that the fleet, which only creates this actor, does not import torch.
        from actors.engine_thread import card_of, engine_thread  # noqa: PLC0415

        write_events()
        self._index = index
        self._link = EmulatedLink(link_source(link), index)
        self._thread = engine_thread(spec.threads, spec.device)
        log = None if spec.log is None else RoundLogWriter()
        built = self._thread.submit(build_drafter, spec, None if log is None else log.note).result()
        if log is not None and spec.log is not None:
            folder = Path(spec.log.folder).expanduser() / f"{spec.log.group}-{index}"
            log.begin(RoundFiles(folder, spec.log.most_bytes, log_header(spec, built)))
        self._engine, self._drafts, self._beat = built.engine, ContainedDrafts(built.engine), EngineBeat()
        self._proofs, self._may_stop = 0, spec.stopping.stops
        self._sent = SentMeter(answered)
        self._card = card_of(DrafterCard, built.facts, built.engine.max_context_tokens)
        self._sessions: dict[GenerationId, DrafterSession] = {}
        self._acts: list[_Act] = []
        self._acts_lock = threading.Lock()
        self._working = False
        self._waiting: dict[tuple[GenerationId, int], asyncio.Future[DraftAnswer]] = {}
        self._fault: Exception | None = None
        started()

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

    async def emulate_link(self, source: LinkProfile | None) -> None:
        """Replace the emulated link; None: emulate none."""
        self._link = EmulatedLink(source, self._index)

    async def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """Open a generation at the engine.

        Raises:
            ContextTooLongError: the generation can never fit this drafter.
        """
        token_ids = (*request.prompt_ids, *request.output_ids)
        session = DrafterSession(terms.wire, request.generation, token_ids)
        self._sessions[request.generation] = session
        await self._link.carry(Direction.DOWN, len(token_ids) * id_bits(terms.wire.vocab_size))
        if self._sessions.get(request.generation) is not session:
            return  # closed, or opened again, while the message was on the emulated link
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
        await self._link.carry(Direction.DOWN, payload_bits(order))
        arrived_at_s = time.monotonic()
        data = await self._answered(generation, order)
        drafter_s = time.monotonic() - arrived_at_s
        await self._link.carry(Direction.UP, payload_bits(data))
        return Answer(data, drafter_s)

    async def probe(self, sent: bytes, reply_bytes: int) -> Answer:
        """Return ``reply_bytes`` zero bytes (64 MiB at most) over the same link, without the engine."""
        await self._link.carry(Direction.DOWN, payload_bits(sent))
        data = bytes(min(reply_bytes, _MOST_PROBE_BYTES))
        await self._link.carry(Direction.UP, payload_bits(data))
        return Answer(data, 0.0)

    async def reply(self, method: str, *arguments: Any) -> bytes:
        """Call a method and return its result or error as plain bytes: callers read nothing else (``plain_handle``)."""
        if method not in _PLAIN:
            return plain_failure(AttributeError(method))
        try:
            return plain(await getattr(self, method)(*arguments))
        except Exception as error:  # noqa: BLE001 (sent to the caller as bytes)
            return plain_failure(error)

    async def held(self) -> DrafterHoldings:
        """Return the generations in memory, and the TCP segments sent so far."""
        self._check()
        return DrafterHoldings(tuple(self._sessions), *self._sent.look())

    async def usage(self) -> KvUsage:
        """Return the engine's use of memory, read on its thread between two steps."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.usage)

    async def close(self, generation: GenerationId) -> None:
        """Drop a generation; cancel an exchange that still waits for its draft."""
        self._sessions.pop(generation, None)
        for (name, _), answer in self._waiting.items():
            if name == generation:
                answer.cancel()
        await self._apply(partial(self._engine.close, generation))

    async def forget(self, generations: Sequence[GenerationId]) -> None:
        """Close generations that no coordinator has leased any more. Called by the fleet."""
        for generation in generations:
            await self.close(generation)

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
        if key in self._waiting:  # a repeated order: the coordinator does not wait for the first answer any more
            self._waiting[key].cancel()
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


class EmulatedLink:
    """One device's link in both directions; without a source it has no delay."""

    def __init__(self, source: LinkSource | None, seed: int) -> None:
        self._emulator = None if source is None else LinkEmulator(source, seed)
        self._began_at_s = time.monotonic()

    async def carry(self, direction: Direction, payload_bits: int) -> None:
        """Return once a message of this size has crossed."""
        if self._emulator is None:
            return
        now_s = time.monotonic() - self._began_at_s
        await asyncio.sleep(self._emulator.deliver(direction, payload_bits, now_s) - now_s)


def _attempt(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 (``_apply`` of this act's caller raises it)
        return error
    return None
