"""Leases a drafter for one generation, prefills it, exchanges orders for drafts, and replaces it when it is lost.

Leasing and prefill run in a background task. Until they are done ``ready`` is False and rounds go on without a
drafter, so neither the first token nor a recovery waits for a device.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from actors.coordinator.transport import DrafterTransport
from actors.messages import DrafterId
from actors.waiting import within
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms, NeedsPrefix, NeedsRow
from outrider.contracts.errors import (
    ContextTooLongError,
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    DraftingFailedError,
    MessageError,
    OutriderError,
)
from outrider.contracts.exchanged import CorrectionSource, WireFormat
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import GenerationId
from outrider.contracts.tracing import trace_id_of
from outrider.contracts.verifying import Resolution
from outrider.events import event
from outrider.link.latency import down_s
from outrider.link.state import LinkSample, ProbeRequest
from outrider.protocols.registry import NO_TOKENS, untrusted_safe_protocols
from outrider.rounds.events import AskAgain, AskDrafter, DrafterAnswered, Exchange, LeasedDrafter
from outrider.rounds.generation import Generation
from outrider.rounds.rules import LINK_PATIENCE
from outrider.session.answers import draft_fault, drafted_layers
from outrider.session.session import CoordinatorSession, payload_bits
from outrider.session.sizes import most_block_bytes, most_details_bytes
from outrider.tracing.responses import ResponseTrace
from serve_app.coordination.drafting.drafter_book import DrafterBook, DrafterRecord, ExchangeOutcome

_MOST_LOST_STATE = 5
_CATCH_UP_TOKENS = 32  # an order with more feedback makes the drafter compute tokens committed without it
_PING = bytes(1)
_PREFILL_ROUND = -1  # round number of the window-0 exchange that computes a drafter's prefix

# Errors that may depend on the drawn tokens: under a ratio rule a round lost by one of these is reported as inexact.
_MAY_HAVE_DRAWN = DrafterBrokenError | DrafterSilentError | DraftingFailedError

log = logging.getLogger(__name__)

_Read = Callable[[bytes], Draft | NeedsRow | Resolution | None]  # None: the drafter lacks the prefix


@dataclass(frozen=True, slots=True)
class _Message:
    data: bytes
    read: _Read  # decodes the answer
    most_answer_bytes: int


@dataclass(frozen=True, slots=True)
class DrafterPort:
    drafter: DrafterId
    transport: DrafterTransport


class FleetPort(Protocol):
    """The fleet, as a coordinator sees it. Implementations bound every call by a deadline of their own."""

    async def lease(
        self, generation: GenerationId, exclude: frozenset[DrafterId], groups: frozenset[str] | None
    ) -> DrafterPort | None:
        """Lease a drafter of ``groups`` (None: of any); None if none is free or the fleet does not answer."""
        ...

    def release(self, generation: GenerationId) -> None:
        """End the lease, without waiting for the fleet."""
        ...

    def report_lost(self, drafter: DrafterId) -> None:
        """Report a drafter that does not answer, without waiting for the fleet."""
        ...

    def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """Report a drafter that sent an invalid answer or failed at this generation, without waiting for the fleet."""
        ...


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Deadlines of exchanges with a drafter, and the format of its messages."""

    draft_deadline_s: float
    must_use_deadline_s: float  # to a must-use draft, while the drafter answers probes
    prefill_deadline_s: float
    retry_s: float  # pause before the fleet is asked again when no drafter was free
    wire: WireFormat
    most_losses: int = 5  # drafters; then the generation itself may be what breaks them, and it goes on without


@dataclass(frozen=True, slots=True)
class LinkServices:
    """Dependencies that all links of a coordinator share. ``clock`` is monotonic, in seconds."""

    fleet: FleetPort
    book: DrafterBook
    settings: LinkSettings
    clock: Callable[[], float]


class DrafterLink:
    """The drafter of one generation, if it has one. All methods run on the coordinator's event loop."""

    def __init__(
        self,
        generation: Generation,
        services: LinkServices,
        stop_ids: tuple[int, ...] = (),
        trace: ResponseTrace | None = None,
    ) -> None:
        """Lease nothing yet; ``start`` does. ``stop_ids`` are tokens that complete a stop string by themselves.

        ``trace`` is that of the generation's response, if it is sampled.
        """
        self._generation, self._trace = generation, trace
        self._fleet, self._book = services.fleet, services.book
        self._settings, self._clock = services.settings, services.clock
        self._end_ids = (*generation.end_ids, *stop_ids)
        self._session = CoordinatorSession(services.settings.wire, generation.name)
        self._port: DrafterPort | None = None
        self._known_tokens = 0  # tokens of the prefix that the drafter has been sent
        # Failed, or of another model than a pending correction's; tried again once no other drafter is free.
        self._excluded: frozenset[DrafterId] = frozenset()
        self._too_small: frozenset[DrafterId] = frozenset()  # the generation does not fit: never tried again
        self._lost_state_in_a_row = 0  # exchanges for which a drafter lacked the prefix it had been given
        self._acquiring: asyncio.Task[None] | None = None  # kept to be cancelled by ``close``, as is ``_probing``
        self._probing: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self.losses = 0  # drafters that failed this generation
        self._ended: str | None = None  # why drafting has ended; a pending correction is still drawn by a drafter

    @property
    def ready(self) -> bool:
        """Whether a drafter is leased and has the prefix."""
        return self._is_ready.is_set()

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait at most ``deadline_s`` for a drafter; return either way."""
        with suppress(TimeoutError):
            await within(max(0.0, deadline_s), self._is_ready.wait())

    @property
    def drafter(self) -> LeasedDrafter | None:
        if self._port is None:
            return None
        book, drafter = self._book, self._port.drafter
        view = book.view(drafter, self._clock()) if self.ready else None
        return LeasedDrafter(book.model(drafter), book.acceptance(drafter), view, book.is_trusted(drafter))

    def start(self) -> None:
        """Lease and prefill a drafter in the background, unless drafting has ended."""
        self._is_ready.clear()
        if self._may_lease:
            self._acquiring = asyncio.get_running_loop().create_task(self._acquire_or_end())

    @property
    def _may_lease(self) -> bool:
        return self._ended is None or self._generation.correction_by is not None

    def close(self) -> None:
        """Cancel the background tasks, have the drafter drop the generation, and end the lease."""
        for task in (self._acquiring, self._probing):
            if task is not None:
                task.cancel()
        if self._port is not None:
            self._port.transport.close(self._generation.name)
        self._fleet.release(self._generation.name)

    async def draft(self, asked: AskDrafter) -> DrafterAnswered:
        """Order one block. If no draft comes, the answer says so and a replacement is already being leased."""
        assert self._port is not None, "draft() needs ready"
        port, request = self._port, self._request(asked.round, asked.plan, asked.correction, asked.price)
        deadline_s = self._settings.draft_deadline_s + asked.allowed_s
        exchanged = self._exchange(port, request, deadline_s, must_use=asked.must_use)
        return await self._unless_lost(asked.round, port, exchanged)

    async def ask_again(self, again: AskAgain) -> DrafterAnswered:
        """Ask the drafter of the last block for what its undecided round needs; on failure as ``draft``."""
        assert self._port is not None, "ask_again() needs a block that was drafted"
        port, question = self._port, self._session.encode_question(again.asked)
        deadline_s = self._settings.draft_deadline_s + again.allowed_s + self._down_patience_s(port, question)
        read = partial(self._session.decode_details, asked=again.asked)
        most_bytes = most_details_bytes(self._session.wire, len(again.asked.mismatches))
        carried = self._carried(port, _Message(question, read, most_bytes), deadline_s)
        return await self._unless_lost(again.asked.round, port, carried)

    async def _unless_lost(
        self, number: int, port: DrafterPort, carried: Coroutine[Any, Any, Exchange | None]
    ) -> DrafterAnswered:
        """Await an exchange; if the drafter was lost or lacks the prefix, lease and prefill again."""
        try:
            exchange = await carried
        except OutriderError as error:
            self._give_up(port, error)
            self.start()
            return DrafterAnswered(number, None, censored=isinstance(error, _MAY_HAVE_DRAWN))
        if exchange is None:
            self._close_without_state(port)
            self.start()
            return DrafterAnswered(number, None)
        self._lost_state_in_a_row = 0
        self._probe_if_due(port)
        return DrafterAnswered(number, exchange)

    def _close_without_state(self, port: DrafterPort) -> None:
        """Close a drafter that lacks the prefix. It says so before it draws: the output distribution is unchanged."""
        self._lost_state_in_a_row += 1
        if self._lost_state_in_a_row > _MOST_LOST_STATE:
            self._give_up(port, DrafterBrokenError(f"drafter {port.drafter.actor_name} forgets its generations"))
            return
        # The next lease may be on another drafter: this one must drop what it may still hold of the generation.
        port.transport.close(self._generation.name)
        self._port = None

    async def _exchange(
        self, port: DrafterPort, request: DraftRequest, deadline_s: float, *, must_use: bool = False
    ) -> Exchange | None:
        """Send one order and return its checked answer; None if the drafter lacks the prefix."""
        order = self._session.encode_order(request)
        deadline_s += self._down_patience_s(port, order)
        read = partial(self._read, port=port, request=request)
        message = _Message(order, read, most_block_bytes(self._session.wire, request.plan))
        carry = partial(self._carried, port, message)
        catches_up = len(request.feedback) > _CATCH_UP_TOKENS
        if must_use:
            carried = carry(self._settings.must_use_deadline_s, catches_up=catches_up)
            exchange = await self._while_it_lives(port, carried, deadline_s)
        else:
            exchange = await carry(deadline_s, catches_up=catches_up)
        if exchange is not None:
            self._known_tokens = request.feedback_position + len(request.feedback)
        return exchange

    async def _while_it_lives(
        self, port: DrafterPort, carried: Coroutine[Any, Any, Exchange | None], quiet_s: float
    ) -> Exchange | None:
        """Await a must-use draft for as long as the drafter answers probes.

        How late a draft is may depend on its tokens, so dropping late drafts would bias a ratio rule's output.

        Args:
            port: the drafter.
            carried: the exchange.
            quiet_s: after which probes begin, and the deadline of each. A draft of the largest size may delay a probe's
                answer on the link; this must be long enough for it, whatever was drawn.
        """
        answering, watching = asyncio.create_task(carried), None
        try:
            await asyncio.wait({answering}, timeout=quiet_s)
            if not answering.done():
                watching = asyncio.create_task(self._until_silent(port, quiet_s))
                await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching is None or answering.done():
                return await answering
            error = await watching
            self._book.exchanged(port.drafter, ExchangeOutcome.of(error))
            raise DrafterLostError(f"drafter {port.drafter.actor_name} is considered lost: {error}")
        except DrafterSilentError as silent:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} lives but sent no block: {silent}") from silent
        finally:  # also if this task is cancelled: ``asyncio.wait`` does not cancel what it waits for
            answering.cancel()
            if watching is not None:
                watching.cancel()

    async def _until_silent(self, port: DrafterPort, deadline_s: float) -> OutriderError:
        """Probe a drafter until a probe fails, and return the error. Probes are independent of the draft's tokens."""
        while True:
            try:
                await port.transport.probe(_PING, len(_PING), deadline_s)
            except OutriderError as error:
                return error
            await asyncio.sleep(self._settings.draft_deadline_s)

    def _read(self, data: bytes, port: DrafterPort, request: DraftRequest) -> Draft | NeedsRow | None:
        answer = self._session.decode_answer(data, request)
        if isinstance(answer, NeedsPrefix):
            return None
        fault = draft_fault(answer, request, self._generation.request.params) if isinstance(answer, Draft) else None
        if fault is not None:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} {fault}")
        return answer

    async def _carried(
        self, port: DrafterPort, message: _Message, deadline_s: float, *, catches_up: bool = False
    ) -> Exchange | None:
        """Exchange one message down and one up, and count the outcome; None if the drafter lacks the prefix.

        An exchange that ``catches_up`` is left out of the estimate of drafting speed: it computes many tokens first.
        """
        try:
            exchange = await self._measured(port, message, deadline_s, catches_up=catches_up)
        except OutriderError as error:
            self._book.exchanged(port.drafter, ExchangeOutcome.of(error))
            raise
        self._book.exchanged(port.drafter, ExchangeOutcome.ANSWERED)
        return exchange

    async def _measured(
        self, port: DrafterPort, message: _Message, deadline_s: float, *, catches_up: bool
    ) -> Exchange | None:
        record, sent_at_s = self._book.record(port.drafter), self._clock()
        name, most_bytes = self._generation.name, message.most_answer_bytes
        reply = await port.transport.exchange(name, message.data, deadline_s, most_bytes)
        elapsed_s = self._clock() - sent_at_s
        if not reply.data:
            return None
        try:
            answer = message.read(reply.data)
        except MessageError as error:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} sent unreadable data: {error}") from error
        if answer is None:
            return None
        drafter_s = min(reply.drafter_s, elapsed_s)
        up_bits, down_bits = payload_bits(reply.data), payload_bits(message.data)
        self._generation.exchanged(up_bits, down_bits)
        steps = drafted_layers(answer) if isinstance(answer, Draft) and not catches_up else 0
        record.observe(LinkSample(sent_at_s + elapsed_s, down_bits, up_bits, elapsed_s, drafter_s), steps)
        model = self._book.model(port.drafter)
        return Exchange(answer, drafter_s, elapsed_s - drafter_s, up_bits, down_bits, model)

    def _down_patience_s(self, port: DrafterPort, message: bytes) -> float:
        """Return the time added to a deadline for the message down, which may carry a whole row of probabilities."""
        csi = self._book.record(port.drafter).view(self._clock()).csi
        return 0.0 if csi is None else LINK_PATIENCE * down_s(csi, payload_bits(message))

    def _request(
        self,
        number: int,
        plan: DraftPlan,
        correction: CorrectionSource | None = None,
        price: DraftPrice | None = None,
    ) -> DraftRequest:
        generation = self._generation
        prompt_tokens = len(generation.request.prompt_ids)
        return DraftRequest(
            generation=generation.name,
            round=number,
            feedback_position=self._known_tokens,
            feedback=tuple(generation.output_ids[self._known_tokens - prompt_tokens :]),
            prefix_hash=generation.prefix_hash,
            plan=plan,
            correction=correction,
            price=price,
        )

    def _probe_if_due(self, port: DrafterPort) -> None:
        """Measure the link in the background, if its last samples are old."""
        record = self._book.record(port.drafter)
        if record.probing:  # the record is shared by all links to this drafter
            return
        probe = record.link.probe_due(self._clock())
        if probe is None:
            return
        record.probing = True
        self._probing = asyncio.get_running_loop().create_task(self._probe(port, record, probe))
        self._probing.add_done_callback(lambda _: record.probed())  # no ``finally``: a cancelled task may never begin

    async def _probe(self, port: DrafterPort, record: DrafterRecord, probe: ProbeRequest) -> None:
        try:
            sent_at_s = self._clock()
            deadline_s = self._settings.prefill_deadline_s
            sent = bytes(probe.down_bits // 8)
            answer = await port.transport.probe(sent, probe.up_bits // 8, deadline_s)
            elapsed_s = self._clock() - sent_at_s
            sample = LinkSample(
                sent_at_s + elapsed_s, probe.down_bits, probe.up_bits, elapsed_s, min(answer.drafter_s, elapsed_s)
            )
            record.link.observe(sample)
        except Exception as error:  # noqa: BLE001 (no caller awaits this task)
            # The next round's exchange notices a drafter that is lost.
            event(log, "probe_failed", logging.WARNING, **self._named(port), reason=str(error))

    async def _acquire_or_end(self) -> None:
        """Run ``_acquire``; no caller awaits its task, so log an unexpected error and end drafting."""
        try:
            await self._acquire()
        except Exception as error:
            log.exception("acquiring_failed")
            if self._port is not None:
                self._port.transport.close(self._generation.name)
                self._port = None
            self._end(f"no drafter can be got ready: {error!r:.200}")

    def _end(self, reason: str) -> None:
        """End drafting for this generation; only a pending correction may still lease a drafter."""
        if self._ended is None:
            self._ended = reason
            event(log, "drafting_ended", logging.WARNING, **self._of_generation(), reason=reason)

    async def _acquire(self) -> None:
        """Lease, open and prefill drafters one after another, until one is ready or drafting has ended."""
        while self._may_lease:
            groups = self._groups()
            port = await self._fleet.lease(self._generation.name, self._excluded | self._too_small, groups)
            if port is None:
                self._excluded = frozenset()  # those that failed may have been restarted meanwhile
                await asyncio.sleep(self._settings.retry_s)
                continue
            if self._generation.correction_by not in (None, self._book.model(port.drafter)):
                # Another model cannot draw the pending correction. With this one excluded, the fleet leases another.
                self._excluded |= {port.drafter}
                continue
            try:
                await self._prepare(port)
            except OutriderError as error:
                self._give_up(port, error)
            else:
                self._is_ready.set()
                event(log, "drafter_leased", **self._named(port))
                self._log("drafter_leased", port)
                return

    def _groups(self) -> frozenset[str] | None:
        """Return the groups that may draft, None for all: those the request allows.

        Where the output would depend on the device's draws, only those of them that are trusted.
        """
        request, book = self._generation.request, self._book
        allowed = None if request.drafters is None else frozenset(request.drafters)
        named = request.protocol
        needs_trust = named is not None and not untrusted_safe_protocols((named,), request.params)
        if not needs_trust and self._generation.correction_by is None:
            return allowed
        return book.trusted if allowed is None else allowed & book.trusted

    async def _prepare(self, port: DrafterPort) -> None:
        settings, generation = self._settings, self._generation
        self._port, self._known_tokens = port, generation.position
        wire = replace(settings.wire, hidden_width=self._book.hidden_width(port.drafter))
        self._session = CoordinatorSession(wire, generation.name)
        terms = DraftTerms(wire, self._end_ids, generation.last_position)
        opening = generation.opening()
        opening = replace(opening, params=replace(opening.params, grammar=None))  # only the verifier applies grammars
        await port.transport.open(opening, terms, settings.prefill_deadline_s)
        request = self._request(_PREFILL_ROUND, NO_TOKENS)
        if await self._exchange(port, request, settings.prefill_deadline_s) is None:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} does not hold the generation just given")

    def _give_up(self, port: DrafterPort, error: OutriderError) -> None:
        """Close and exclude a drafter, and report it to the fleet unless the generation was just too long for it."""
        pending = self._generation.correction_by is not None
        event(log, "drafter_given_up", logging.WARNING, **self._named(port), reason=str(error), correction_owed=pending)
        self._log("drafter_given_up", port, reason=str(error))
        port.transport.close(self._generation.name)
        self._port = None
        self._is_ready.clear()
        if isinstance(error, ContextTooLongError):
            self._too_small |= {port.drafter}
            return
        self._excluded |= {port.drafter}
        self.losses += 1
        if isinstance(error, DrafterBrokenError | DraftingFailedError):
            self._fleet.report_broken(port.drafter, str(error), self._generation.name)
        else:
            self._fleet.report_lost(port.drafter)
        if isinstance(error, DraftingFailedError):
            self._end(str(error))
        elif self.losses >= self._settings.most_losses:
            self._end(f"it has lost {self.losses} drafters, the last by: {error}")

    def _log(self, name: str, port: DrafterPort, **more: str) -> None:
        if self._trace is not None:
            self._trace.happened(name, self._clock(), drafter=port.drafter.actor_name, **more)

    def _named(self, port: DrafterPort) -> dict[str, str | None]:
        return {**self._of_generation(), "drafter": port.drafter.actor_name}

    def _of_generation(self) -> dict[str, str | None]:
        request = self._generation.request
        trace_id = trace_id_of(request.trace)
        return {"request_id": request.request_id, "generation": request.generation, "trace_id": trace_id}
