"""Exchanges of one generation with the drafter that it has leased: opening, orders, questions and probes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms, NeedsPrefix, NeedsRow
from outrider.contracts.errors import (
    DrafterBrokenError,
    DrafterLostError,
    DrafterSilentError,
    MessageError,
    OutriderError,
)
from outrider.contracts.exchanged import CorrectionSource
from outrider.contracts.price import DraftPrice
from outrider.contracts.verifying import Resolution
from outrider.events import event
from outrider.link.latency import down_s
from outrider.link.state import LinkSample, ProbeRequest
from outrider.protocols.registry import NO_TOKENS
from outrider.rounds.choice import prefix_plan
from outrider.rounds.events import AskAgain, AskDrafter, Exchange
from outrider.rounds.generation import Generation
from outrider.rounds.rules import LINK_PATIENCE
from outrider.session.answers import draft_fault, drafted_layers
from outrider.session.session import CoordinatorSession, payload_bits
from outrider.session.sizes import most_block_bytes, most_details_bytes
from serve_app.coordination.drafting.drafter_book import ExchangeOutcome
from serve_app.coordination.drafting.link_services import DrafterPort, LinkServices

_CATCH_UP_TOKENS = 32  # an order with more feedback makes the drafter compute tokens committed without it
_PING = bytes(1)
_PREFILL_ROUND = -1  # round number of the window-0 exchange that computes a drafter's prefix

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Message:
    data: bytes
    read: Callable[[bytes], Draft | NeedsRow | Resolution | None]  # decodes the answer; None: no prefix there
    most_answer_bytes: int


class LeasedDrafterSession:
    """A generation at one drafter. Its exchanges return None if the drafter lacks the prefix."""

    def __init__(self, port: DrafterPort, generation: Generation, services: LinkServices) -> None:
        self.drafter = port.drafter
        self._transport, self._generation = port.transport, generation
        self._book, self._settings, self._clock = services.book, services.settings, services.clock
        self._record = self._book.record(port.drafter)  # shared by all generations that lease the drafter
        width, version = self._book.hidden_width(port.drafter), port.transport.message_version
        wire = replace(self._settings.wire, hidden_width=width, version=version)
        self._session = CoordinatorSession(wire, generation.name)
        self._known_tokens = generation.position  # tokens of the prefix that the drafter has been sent
        self._probing: asyncio.Task[None] | None = None  # kept to be cancelled by ``close``

    async def open(self, end_ids: tuple[int, ...]) -> None:
        """Give the drafter the generation, and have it compute the prefix."""
        settings, generation = self._settings, self._generation
        terms = DraftTerms(self._session.wire, end_ids, generation.last_position)
        opening = generation.opening()
        opening = replace(opening, params=replace(opening.params, grammar=None))  # only the verifier applies grammars
        await self._transport.open(opening, terms, settings.prefill_deadline_s)
        able = self.drafter.group in self._book.able
        plan = prefix_plan(generation.request, judged=bool(terms.wire.hidden_width)) if able else NO_TOKENS
        request = self._request(_PREFILL_ROUND, plan)
        if await self._order(request, settings.prefill_deadline_s) is None:
            raise DrafterBrokenError(f"{self._name} does not hold the generation just given")

    def close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        self._transport.close(self._generation.name)

    async def draft(self, asked: AskDrafter) -> Exchange | None:
        request = self._request(asked.round, asked.plan, asked.correction, asked.price)
        deadline_s = self._settings.draft_deadline_s + asked.allowed_s
        return await self._order(request, deadline_s, must_use=asked.must_use)

    async def ask_again(self, again: AskAgain) -> Exchange | None:
        """Ask for what the undecided round of the last block needs."""
        question = self._session.encode_question(again.asked)
        deadline_s = self._settings.draft_deadline_s + again.allowed_s + self._down_patience_s(question)
        read = partial(self._session.decode_details, asked=again.asked)
        most_bytes = most_details_bytes(self._session.wire, len(again.asked.mismatches))
        return await self._carried(_Message(question, read, most_bytes), deadline_s)

    async def _order(self, request: DraftRequest, deadline_s: float, *, must_use: bool = False) -> Exchange | None:
        order = self._session.encode_order(request)
        deadline_s += self._down_patience_s(order)
        read = partial(self._read, request=request)
        message = _Message(order, read, most_block_bytes(self._session.wire, request.plan))
        carry = partial(self._carried, message, catches_up=len(request.feedback) > _CATCH_UP_TOKENS)
        if must_use:
            exchange = await self._while_it_lives(carry(self._settings.must_use_deadline_s), deadline_s)
        else:
            exchange = await carry(deadline_s)
        if exchange is not None:
            self._known_tokens = request.feedback_position + len(request.feedback)
        return exchange

    async def _while_it_lives(self, carried: Coroutine[Any, Any, Exchange | None], quiet_s: float) -> Exchange | None:
        """Await a must-use draft for as long as the drafter answers probes.

        How late a draft is may depend on its tokens, so dropping late drafts would bias a ratio rule's output.

        Args:
            carried: the exchange.
            quiet_s: after which probes begin, and the deadline of each. A draft of the largest size may delay a probe's
                answer on the link; this must be long enough for it, whatever was drawn.
        """
        answering, watching = asyncio.create_task(carried), None
        try:
            await asyncio.wait({answering}, timeout=quiet_s)
            if not answering.done():
                watching = asyncio.create_task(self._until_silent(quiet_s))
                await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching is None or answering.done():
                return await answering
            error = await watching
            self._book.exchanged(self.drafter, ExchangeOutcome.of(error))
            raise DrafterLostError(f"{self._name} is considered lost: {error}")
        except DrafterSilentError as silent:
            raise DrafterBrokenError(f"{self._name} lives but sent no block: {silent}") from silent
        finally:  # also if this task is cancelled: ``asyncio.wait`` does not cancel what it waits for
            answering.cancel()
            if watching is not None:
                watching.cancel()

    async def _until_silent(self, deadline_s: float) -> OutriderError:
        """Probe a drafter until a probe fails, and return the error. Probes are independent of the draft's tokens."""
        while True:
            try:
                await self._transport.probe(_PING, len(_PING), deadline_s)
            except OutriderError as error:
                return error
            await asyncio.sleep(self._settings.draft_deadline_s)

    def _read(self, data: bytes, request: DraftRequest) -> Draft | NeedsRow | None:
        answer = self._session.decode_answer(data, request)
        if isinstance(answer, NeedsPrefix):
            return None
        fault = draft_fault(answer, request, self._generation.request.params) if isinstance(answer, Draft) else None
        if fault is not None:
            raise DrafterBrokenError(f"{self._name} {fault}")
        return answer

    async def _carried(self, message: _Message, deadline_s: float, *, catches_up: bool = False) -> Exchange | None:
        """Exchange one message down and one up, and count the outcome.

        An exchange that ``catches_up`` is left out of the estimate of drafting speed: it computes many tokens first.
        """
        try:
            exchange = await self._measured(message, deadline_s, catches_up=catches_up)
        except OutriderError as error:
            self._book.exchanged(self.drafter, ExchangeOutcome.of(error))
            raise
        self._book.exchanged(self.drafter, ExchangeOutcome.ANSWERED)
        return exchange

    async def _measured(self, message: _Message, deadline_s: float, *, catches_up: bool) -> Exchange | None:
        sent_at_s, name = self._clock(), self._generation.name
        reply = await self._transport.exchange(name, message.data, deadline_s, message.most_answer_bytes)
        elapsed_s = self._clock() - sent_at_s
        if not reply.data:
            return None
        try:
            answer = message.read(reply.data)
        except MessageError as error:
            raise DrafterBrokenError(f"{self._name} sent unreadable data: {error}") from error
        if answer is None:
            return None
        drafter_s = min(reply.drafter_s, elapsed_s)
        up_bits, down_bits = payload_bits(reply.data), payload_bits(message.data)
        self._generation.exchanged(up_bits, down_bits)
        steps = drafted_layers(answer) if isinstance(answer, Draft) and not catches_up else 0
        self._record.observe(LinkSample(sent_at_s + elapsed_s, down_bits, up_bits, elapsed_s, drafter_s), steps)
        return Exchange(answer, drafter_s, elapsed_s - drafter_s, up_bits, down_bits, self._book.model(self.drafter))

    def _down_patience_s(self, message: bytes) -> float:
        """Return the time added to a deadline for the message down, which may carry a whole row of probabilities."""
        csi = self._record.view(self._clock()).csi
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

    def probe_if_due(self) -> None:
        """Measure the link in the background, if its last samples are old."""
        record = self._record
        probe = None if record.probing else record.link.probe_due(self._clock())
        if probe is None:
            return
        record.probing = True
        self._probing = asyncio.get_running_loop().create_task(self._probe(probe))
        self._probing.add_done_callback(lambda _: record.probed())  # no ``finally``: a cancelled task may never begin

    async def _probe(self, probe: ProbeRequest) -> None:
        try:
            sent_at_s = self._clock()
            sent = bytes(probe.down_bits // 8)
            answer = await self._transport.probe(sent, probe.up_bits // 8, self._settings.prefill_deadline_s)
            elapsed_s = self._clock() - sent_at_s
            peer_s = min(answer.drafter_s, elapsed_s)
            sample = LinkSample(sent_at_s + elapsed_s, probe.down_bits, probe.up_bits, elapsed_s, peer_s)
            self._record.link.observe(sample)
        except Exception as error:  # noqa: BLE001 (no caller awaits this task)
            # The next round's exchange notices a drafter that is lost.
            named = {**self._generation.log_names, "drafter": self.drafter.actor_name}
            event(log, "probe_failed", logging.WARNING, **named, reason=str(error))

    @property
    def _name(self) -> str:
        return f"drafter {self.drafter.actor_name}"
