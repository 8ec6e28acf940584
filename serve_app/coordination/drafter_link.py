"""One generation's way to a drafter: lease one, bring its KV up to date, exchange rounds, replace it when it is lost.

Leasing and prefill run in the background; until they are done ``ready`` is False and the rounds go on without a
drafter. So neither the first token nor a recovery ever waits for a device.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from actors.messages import DrafterId
from actors.transport import DrafterTransport
from actors.waiting import within
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms, NeedsPrefix, NeedsRow
from outrider.contracts.errors import ContextTooLongError, DrafterBrokenError, MessageError, OutriderError
from outrider.contracts.exchanged import CorrectionSource, WireFormat
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Resolution, Undecided
from outrider.events import event
from outrider.link.latency import down_s
from outrider.link.state import LinkSample, ProbeRequest
from outrider.protocols.registry import NO_TOKENS
from outrider.rounds.events import Drafter, Exchange
from outrider.rounds.generation import Generation
from outrider.rounds.machine import LINK_PATIENCE
from outrider.session.answers import draft_fault, drafted_layers
from outrider.session.session import CoordinatorSession, payload_bits
from serve_app.coordination.drafter_book import DrafterBook, DrafterRecord

_MOST_FORGOTTEN = 5
_PREFILL_ROUND = -1  # round number of the window-0 exchange that computes a drafter's prefix

log = logging.getLogger(__name__)

_Read = Callable[[bytes], Draft | NeedsRow | Resolution | None]  # None: the drafter asks for the prefix


@dataclass(frozen=True, slots=True)
class DrafterPort:
    """A leased drafter and how to reach it."""

    drafter: DrafterId
    transport: DrafterTransport


class FleetPort(Protocol):
    """The fleet, as a coordinator sees it. Calls have their own deadlines."""

    async def lease(self, generation: GenerationId, exclude: frozenset[DrafterId]) -> DrafterPort | None:
        """Lease a drafter; None if there is none now, or the fleet does not answer."""
        ...

    def release(self, generation: GenerationId) -> None:
        """End the lease; nobody waits for that."""
        ...

    def report_lost(self, drafter: DrafterId) -> None:
        """Tell the fleet that a drafter does not answer; nobody waits for that."""
        ...

    def report_broken(self, drafter: DrafterId, fault: str) -> None:
        """Tell the fleet that a drafter answers nonsense; nobody waits for that."""
        ...


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Deadlines of exchanges with a drafter, and how its messages are written."""

    draft_deadline_s: float
    prefill_deadline_s: float
    retry_s: float  # pause before asking for a drafter again when there was none
    wire: WireFormat


@dataclass(frozen=True, slots=True)
class LinkServices:
    """What a coordinator's links share. ``clock`` is monotonic, in seconds."""

    fleet: FleetPort
    book: DrafterBook
    settings: LinkSettings
    clock: Callable[[], float]


class DrafterLink:
    """The drafter of one generation, if it has one."""

    def __init__(self, generation: Generation, services: LinkServices, stop_ids: tuple[int, ...] = ()) -> None:
        """Nothing is leased before ``start``. ``stop_ids`` are tokens that complete a stop string by themselves."""
        self._generation = generation
        self._fleet, self._book = services.fleet, services.book
        self._settings, self._clock = services.settings, services.clock
        self._end_ids = (*generation.end_ids, *stop_ids)
        self._session = CoordinatorSession(services.settings.wire, generation.name)
        self._port: DrafterPort | None = None
        self._known_tokens = 0  # committed tokens the drafter has
        self._excluded: frozenset[DrafterId] = frozenset()  # for now: it failed, and may be restarted
        self._too_small: frozenset[DrafterId] = frozenset()  # for good: the generation does not fit
        self._forgotten = 0  # exchanges in a row for which a drafter lacked the prefix it had been given
        self._acquiring: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self.losses = 0  # drafters that failed this generation

    @property
    def ready(self) -> bool:
        """Whether a drafter is leased and its KV is up to date."""
        return self._is_ready.is_set()

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait for a drafter, no longer than that."""
        with suppress(TimeoutError):
            await within(max(0.0, deadline_s), self._is_ready.wait())

    @property
    def drafter(self) -> Drafter | None:
        """The leased drafter."""
        if self._port is None:
            return None
        book, drafter = self._book, self._port.drafter
        view = book.record(drafter).view(self._clock()) if self.ready else None
        return Drafter(book.model(drafter), book.acceptance(drafter), view)

    def start(self) -> None:
        """Begin to get a drafter ready, in the background."""
        self._is_ready.clear()
        self._acquiring = asyncio.get_running_loop().create_task(self._acquire())

    def close(self) -> None:
        """Give the drafter back; it forgets the generation."""
        for task in (self._acquiring, self._probing):
            if task is not None:
                task.cancel()
        if self._port is not None:
            self._port.transport.close(self._generation.name)
        self._fleet.release(self._generation.name)

    async def draft(
        self, number: int, plan: DraftPlan, correction: CorrectionSource | None, allowed_s: float
    ) -> Exchange | None:
        """Have one block drafted; None if the drafter was lost or lacks the prefix (a replacement is on its way).

        Args:
            number: of the round.
            plan: what to draft.
            correction: what the device is to draw the next token from, if that is its to draw.
            allowed_s: seconds the exchange is expected to take on a slow link, beyond the usual deadline.
        """
        assert self._port is not None, "draft() needs ready"
        port, request = self._port, self._request(number, plan, correction)
        deadline_s = self._settings.draft_deadline_s + allowed_s
        return await self._unless_lost(port, self._exchange(port, request, deadline_s))

    async def ask_again(self, asked: Undecided, allowed_s: float) -> Exchange | None:
        """Have the drafter of the last block send what the verifier needs of it before it decides; as ``draft``."""
        assert self._port is not None, "ask_again() needs a block that was drafted"
        port, question = self._port, self._session.encode_question(asked)
        deadline_s = self._settings.draft_deadline_s + allowed_s
        read = partial(self._session.decode_details, asked=asked)
        return await self._unless_lost(port, self._carried(port, question, read, deadline_s))

    async def _unless_lost(self, port: DrafterPort, carried: Coroutine[Any, Any, Exchange | None]) -> Exchange | None:
        """What came of an exchange; None if the drafter was lost or lacks the prefix: another is made ready."""
        try:
            exchange = await carried
            if exchange is None:
                self._forgotten += 1
                if self._forgotten > _MOST_FORGOTTEN:
                    raise DrafterBrokenError(f"drafter {port.drafter.actor_name} forgets what it is given")
                # Whichever drafter is leased next, this one is not to keep what it may still have.
                port.transport.close(self._generation.name)
                self._port = None
                self.start()
                return None
        except OutriderError as error:
            self._give_up(port, error)
            self.start()
            return None
        self._forgotten = 0
        self._probe_if_due(port)
        return exchange

    async def _exchange(self, port: DrafterPort, request: DraftRequest, deadline_s: float) -> Exchange | None:
        """One order and its answer, checked; None if the drafter lacks the prefix."""
        order = self._session.encode_order(request)
        exchange = await self._carried(port, order, partial(self._read, port=port, request=request), deadline_s)
        if exchange is not None:
            self._known_tokens = request.feedback_position + len(request.feedback)
        return exchange

    def _read(self, data: bytes, port: DrafterPort, request: DraftRequest) -> Draft | NeedsRow | None:
        answer = self._session.decode_answer(data, request)
        if isinstance(answer, NeedsPrefix):
            return None
        fault = draft_fault(answer, request, self._generation.request.params) if isinstance(answer, Draft) else None
        if fault is not None:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} {fault}")
        return answer

    async def _carried(self, port: DrafterPort, message: bytes, read: _Read, deadline_s: float) -> Exchange | None:
        """One message down and one up, measured; None if the drafter has not what the first assumes."""
        record = self._book.record(port.drafter)
        sent_at_s = self._clock()
        csi = record.view(sent_at_s).csi
        if csi is not None:
            deadline_s += LINK_PATIENCE * down_s(csi, payload_bits(message))  # it may carry a whole row
        reply = await port.transport.exchange(self._generation.name, message, deadline_s)
        elapsed_s = self._clock() - sent_at_s
        if not reply.data:
            return None
        try:
            answer = read(reply.data)
        except MessageError as error:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} sent what cannot be read: {error}") from error
        if answer is None:
            return None
        drafter_s = min(reply.drafter_s, elapsed_s)
        up_bits, down_bits = payload_bits(reply.data), payload_bits(message)
        self._generation.exchanged(up_bits, down_bits)
        steps = drafted_layers(answer) if isinstance(answer, Draft) else 0
        record.observe(LinkSample(sent_at_s + elapsed_s, down_bits, up_bits, elapsed_s, drafter_s), steps)
        model = self._book.model(port.drafter)
        return Exchange(answer, drafter_s, elapsed_s - drafter_s, up_bits, down_bits, model)

    def _request(self, number: int, plan: DraftPlan, correction: CorrectionSource | None) -> DraftRequest:
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
        )

    def _probe_if_due(self, port: DrafterPort) -> None:
        """Measure the link in the background, if what is known of it is old."""
        record = self._book.record(port.drafter)
        if record.probing:
            return
        probe = record.link.probe_due(self._clock())
        if probe is None:
            return
        record.probing = True
        self._probing = asyncio.get_running_loop().create_task(self._probe(port, record, probe))
        self._probing.add_done_callback(lambda _: record.probed())  # cancelled ones may never have begun

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
        except OutriderError as error:
            # A drafter that is lost will be noticed by the rounds.
            event(log, "probe_failed", logging.WARNING, **self._named(port), reason=str(error))

    async def _acquire(self) -> None:
        """Lease, open and prefill a drafter, and try others, until one is ready."""
        while True:
            port = await self._fleet.lease(self._generation.name, self._excluded | self._too_small)
            if port is None:
                # A drafter that failed once may have been restarted by now.
                self._excluded = frozenset()
                await asyncio.sleep(self._settings.retry_s)
                continue
            if self._generation.correction_by not in (None, self._book.model(port.drafter)):
                # Another model cannot draw what is owed. Asked again, the fleet leases another drafter.
                self._excluded |= {port.drafter}
                continue
            try:
                await self._prepare(port)
            except OutriderError as error:
                self._give_up(port, error)
            else:
                self._is_ready.set()
                event(log, "drafter_leased", **self._named(port))
                return

    async def _prepare(self, port: DrafterPort) -> None:
        settings, generation = self._settings, self._generation
        self._port, self._known_tokens = port, generation.position
        self._session = CoordinatorSession(settings.wire, generation.name)
        terms = DraftTerms(settings.wire, self._end_ids, generation.last_position)
        await port.transport.open(generation.opening(), terms, settings.prefill_deadline_s)
        request = self._request(_PREFILL_ROUND, NO_TOKENS, None)
        if await self._exchange(port, request, settings.prefill_deadline_s) is None:
            raise DrafterBrokenError(f"drafter {port.drafter.actor_name} does not hold what it was just given")

    def _give_up(self, port: DrafterPort, error: OutriderError) -> None:
        """Part with a drafter, and tell the fleet if it is the drafter's fault."""
        owed = self._generation.correction_by is not None
        event(log, "drafter_given_up", logging.WARNING, **self._named(port), reason=str(error), correction_owed=owed)
        port.transport.close(self._generation.name)
        self._port = None
        self._is_ready.clear()
        if isinstance(error, ContextTooLongError):
            self._too_small |= {port.drafter}
            return
        self._excluded |= {port.drafter}
        self.losses += 1
        if isinstance(error, DrafterBrokenError):
            self._fleet.report_broken(port.drafter, str(error))
        else:
            self._fleet.report_lost(port.drafter)

    def _named(self, port: DrafterPort) -> dict[str, str]:
        request = self._generation.request
        return {
            "request_id": request.request_id,
            "generation": request.generation,
            "drafter": port.drafter.actor_name,
        }
