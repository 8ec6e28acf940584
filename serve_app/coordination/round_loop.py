"""The round loop of one generation: draft, verify, commit, stream - until the response ends.

All decisions are taken by pure code (``outrider.rounds``, ``outrider.selection``, the verifier's rule); this file
waits for drafter and verifier and survives the loss of either.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from outrider.contracts.committed import Committed
from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import Draft, DraftPlan, NeedsRow
from outrider.contracts.errors import ContextTooLongError, GenerationFailedError, OutriderError, VerifierLostError
from outrider.contracts.exchanged import CorrectionSource
from outrider.contracts.requests import ChoiceReport, GenerationChunk
from outrider.contracts.verifying import Block, Refused, Resolution, Verified
from outrider.events import event
from outrider.protocols.registry import CORRECTION_ALONE, PROTOCOLS
from outrider.rounds.blocks import make_block, row_request
from outrider.rounds.generation import Generation, GenerationEvent, GenerationState, RoundEvent
from outrider.rounds.load import PresentLoad
from outrider.rounds.timing import RoundTiming
from outrider.scheduling.attribution import SpikeDetector
from outrider.scheduling.ledger import DeadlineRule
from outrider.selection.situation import SelectionPolicy
from outrider.text.shown import IncrementalText, shown
from serve_app import metrics
from serve_app.coordination.batcher import Batcher, VerifyResult, block_tokens
from serve_app.coordination.drafter_link import LINK_PATIENCE, DrafterLink, Exchange
from serve_app.coordination.round_account import Judgement, RoundAccount, VerifyTerms
from serve_app.coordination.round_choice import RoundChooser, report
from serve_app.coordination.speculation import Speculation
from serve_app.metrics import Sink

log = logging.getLogger(__name__)

_MAX_VERIFIER_LOSSES = 5  # in a row, without a committed round between them


@dataclass(frozen=True, slots=True)
class RoundServices:
    """What a round loop works with; shared by all generations of a coordinator."""

    batcher: Batcher
    await_verifier: Callable[[], Coroutine[Any, Any, None]]  # returns once the verifier answers; raises if it is gone
    speculation: Speculation
    policy: SelectionPolicy
    deadline_rule: DeadlineRule
    spikes: SpikeDetector
    load: PresentLoad
    correction_deadline_s: float  # how long a token that is a device's to draw waits for a device
    observe: Callable[[RoundTiming], None]  # told of every committed round
    sink: Sink


class RoundLoop:
    """Makes one response."""

    def __init__(
        self, generation: Generation, link: DrafterLink, text: IncrementalText, services: RoundServices
    ) -> None:
        """Take over a NEW generation, its way to a drafter and its text."""
        self._generation = generation
        self._link = link
        self._text = text
        self._services = services
        self._chooser = RoundChooser(generation, services.speculation, services.policy)
        self._account = RoundAccount(generation, services.deadline_rule, services.spikes)
        self._source: CorrectionSource | None = None  # from which a device is to draw the next token, once it is known
        self._choices: list[ChoiceReport] = []  # not told yet
        self._correction_due_at_s: float | None = None  # while one is owed
        self._held_by_verifier = False
        self._losses = 0

    async def run(self) -> AsyncGenerator[GenerationChunk, None]:
        """Commit round after round; the last chunk carries the finish reason and the statistics.

        Raises:
            ContextTooLongError: the prompt does not fit the verifier.
            GenerationFailedError: the verifier was lost again and again.
            VerifierLostError: it was lost and did not come up again in time.
        """
        generation = self._generation
        generation.happened(GenerationEvent.STARTED)
        request = generation.request
        self._log("generation_started", prompt_tokens=len(request.prompt_ids), resumed_tokens=len(request.output_ids))
        finished, reason = False, None
        try:
            if self._chooser.may_draft or generation.correction_by is not None:
                self._link.start()
            while not finished:
                async with aclosing(self._round()) as pieces:
                    async for committed in pieces:
                        # Without tokens where all was rejected: the record must say whose the next one is.
                        chunk = self._chunk(committed)
                        finished = chunk.finish_reason is not None
                        if finished:
                            generation.happened(GenerationEvent.ENDED)
                        yield chunk
                        if finished:
                            break
        except OutriderError as error:
            generation.happened(GenerationEvent.FAULT)
            reason = str(error)
            raise
        finally:
            if generation.state is GenerationState.ACTIVE:
                generation.happened(GenerationEvent.CLIENT_LEFT)
            self._log(
                f"generation_{generation.state}", tokens=len(generation.output_ids), reason=reason, **self._costs()
            )
            self._services.sink.record(metrics.DRAFTER_LOSSES, self._link.losses)
            self._link.close()
            self._services.batcher.close(generation.name, keep_cache=finished)

    def _log(self, name: str, level: int = logging.INFO, /, **fields: object) -> None:
        request = self._generation.request
        event(log, name, level, request_id=request.request_id, generation=request.generation, **fields)

    def _costs(self) -> dict[str, object]:
        stats = self._generation.stats
        return {"rounds": stats.rounds, "drafted": stats.drafted_tokens, "accepted": stats.accepted_tokens}

    async def _round(self) -> AsyncGenerator[Committed, None]:
        """One round: nothing if it came to nothing (a process was lost), a device's correction, a verified block."""
        began_at_s = time.monotonic()
        if self._generation.correction_by is not None:
            if not await self._drafter_for_correction():
                return
            if self._source is None:
                decided = await self._row_for_correction()
                if decided is not None:
                    yield decided
                if self._source is None:
                    return
        number, plan, exchange, expected_tokens = await self._drafted()
        draft = None if exchange is None else exchange.answer
        assert not isinstance(draft, Resolution), "only an undecided round is resolved"
        if isinstance(draft, NeedsRow):
            self._services.sink.record(metrics.CANDIDATE_FALLBACKS)
            self._source = None
            self._generation.round_happened(number, RoundEvent.OVERTAKEN)
            return
        if self._generation.correction_by is not None and draft is None:
            # The drafter was lost: another one draws it.
            self._generation.round_happened(number, RoundEvent.OVERTAKEN)
            return
        forced = () if draft is None or draft.correction is None else (draft.correction,)
        uncommitted, self._correction_due_at_s = forced, None
        if forced and self._generation.request.logprobs is None:
            # Its log-probability is the only thing the verifier could add.
            self._source, uncommitted = None, ()
            committed = self._generation.commit_correction(forced[0])
            self._account.committed(1)
            yield committed
        block = make_block(
            self._generation,
            number,
            plan,
            draft,
            self._services.speculation.wire,
            forced=forced,
            deferral=self._chooser.deferral(plan),
        )
        result = await self._outcome(block, self._account.terms(began_at_s, expected_tokens))
        if result is None:
            return
        outcome, verified = result
        self._chooser.learn(plan, block, outcome)
        committed = self._generation.commit(
            outcome,
            block.draft,
            uncommitted,
            block.parents,
            protocol=None if plan is None else plan.protocol,
            draft_model=None if exchange is None else exchange.model,
            exact=plan is None or PROTOCOLS[plan.protocol].lossless(self._services.speculation.wire),
        )
        self._source = outcome.deferred
        self._account.committed(len(committed.token_ids))
        new_tokens, round_s = len(committed.token_ids) + len(forced) - len(uncommitted), time.monotonic() - began_at_s
        # A device's correction is of the round that rejected a token, not of the one it arrives with.
        yielded = new_tokens - len(forced) + (self._generation.correction_by is not None)
        judgement = self._account.judged(yielded, round_s, verified.verify_s)
        self._services.observe(self._timing(plan, exchange, block, verified, new_tokens, round_s, judgement))
        yield committed

    async def _drafted(self) -> tuple[int, DraftPlan | None, Exchange | None, float]:
        """Choose and number the round, and have its block drafted, if there is to be one; the last is its yield."""
        generation = self._generation
        view = self._services.load.view(self._services.batcher.cost_model)
        choice = self._chooser.choose(self._link, view, self._account.promise)
        if generation.request.explain:
            self._choices.append(report(choice))
        plan = choice.chosen.plan
        if generation.correction_by is not None and plan is None:
            plan = CORRECTION_ALONE
        number = generation.begin_round(drafting=plan is not None)
        if plan is None:
            return number, None, None, 1.0
        source = None if generation.correction_by is None else self._source
        exchange = await self._link.draft(number, plan, source, LINK_PATIENCE * choice.chosen.round_s)
        if exchange is not None:
            if isinstance(exchange.answer, Draft):
                generation.round_happened(number, RoundEvent.BLOCK_ARRIVED)
            return number, plan, exchange, choice.chosen.expected_tokens
        generation.round_happened(number, RoundEvent.DRAFTER_LOST)
        return generation.begin_round(drafting=False), None, None, 1.0

    async def _drafter_for_correction(self) -> bool:
        """Have a drafter that can draw the next token; False once it has been waited for long enough."""
        generation, now_s = self._generation, time.monotonic()
        if self._correction_due_at_s is None:
            self._correction_due_at_s = now_s + self._services.correction_deadline_s
        found = await self._link.wait_ready(max(0.0, self._correction_due_at_s - now_s))
        if found and self._link.model == generation.correction_by and now_s < self._correction_due_at_s:
            return True
        # Its residual is known to no other model. The target draws the token: near, and said to be inexact.
        self._log("correction_given_up", logging.WARNING, model=generation.correction_by)
        self._services.sink.record(metrics.CORRECTIONS_GIVEN_UP)
        generation.forgo_correction()
        self._source = self._correction_due_at_s = None
        return False

    async def _row_for_correction(self) -> Committed | None:
        """Ask the verifier for what a device is to draw from; if that leaves one token only, it is committed."""
        generation = self._generation
        number = generation.begin_round(drafting=False)
        terms = self._account.terms(time.monotonic(), 1.0)
        result = await self._outcome(row_request(generation, number, self._services.speculation.wire), terms)
        if result is None:
            return None
        committed = generation.commit(result[0], ())
        self._account.committed(len(committed.token_ids))
        self._source = result[0].deferred
        return committed if committed.token_ids else None

    async def _outcome(self, block: Block, terms: VerifyTerms) -> tuple[Verified, VerifyResult] | None:
        """Have a block verified; None if the verifier lost the generation, which is then opened again."""
        try:
            result = await self._verified(block, terms)
        except VerifierLostError:
            await self._recover(block.round)
            return None
        if isinstance(result.outcome, Refused):
            raise ContextTooLongError(result.outcome.reason)
        if not isinstance(result.outcome, Verified):
            # Unknown or stale: the verifier has not this generation's committed sequence. Open it again.
            await self._recover(block.round)
            return None
        self._losses = 0
        return result.outcome, result

    async def _verified(self, block: Block, terms: VerifyTerms) -> VerifyResult:
        generation = self._generation
        opening, cost = None, VerifyCost(len(block.draft) + 1, block_tokens(block) - len(block.draft) - 1)
        if not self._held_by_verifier:
            # Opened with all that is committed, a device's correction included.
            opening = generation.opening()
            generation.verifier_lost()
            forced = block.forced if generation.correction_by is not None else ()
            block = replace(block, position=generation.position, prefix_hash=generation.prefix_hash, forced=forced)
            cost = VerifyCost(block_tokens(block), 0)
        generation.round_happened(block.round, RoundEvent.ENQUEUED)
        observe = partial(generation.round_happened, block.round)
        result = await self._services.batcher.verify(block, cost, opening, observe, terms)
        self._held_by_verifier = True
        return result

    async def _recover(self, number: int) -> None:
        """After the verifier lost this generation: wait until it answers, then have it opened again."""
        self._generation.round_happened(number, RoundEvent.VERIFIER_LOST)
        self._log("round_lost", logging.WARNING, round=number)
        self._services.sink.record(metrics.VERIFIER_LOSSES)
        self._held_by_verifier = False
        self._losses += 1
        if self._losses > _MAX_VERIFIER_LOSSES:
            raise GenerationFailedError(
                f"the verifier was lost {self._losses} times in a row before a round was committed; see its log"
            )
        await self._services.await_verifier()

    def _chunk(self, committed: Committed) -> GenerationChunk:
        piece = shown(self._text, committed)
        self._generation.swallowed(committed.origins[piece.consumed :])
        self._account.swallowed(len(committed.token_ids) - piece.consumed)
        choices, self._choices = tuple(self._choices), []
        return GenerationChunk(
            token_ids=committed.token_ids[: piece.consumed],
            spans=piece.spans,
            stats=self._generation.stats,
            shown_tokens=self._text.shown_tokens,
            logprobs=committed.logprobs[: piece.consumed],
            prompt_logprobs=committed.prompt_logprobs,
            finish_reason=piece.finish,
            correction_by=self._generation.correction_by,
            choices=choices,
            ledger=self._account.record,
        )

    def _timing(
        self,
        plan: DraftPlan | None,
        exchange: Exchange | None,
        block: Block,
        result: VerifyResult,
        committed_tokens: int,
        total_s: float,
        judgement: Judgement | None,
    ) -> RoundTiming:
        return RoundTiming(
            protocol=plan.protocol if plan is not None and block.draft else None,
            drafted_tokens=len(block.draft),
            accepted_tokens=result.outcome.accepted_len if isinstance(result.outcome, Verified) else 0,
            committed_tokens=committed_tokens,
            draft_s=0.0 if exchange is None else exchange.draft_s,
            link_s=0.0 if exchange is None else exchange.link_s,
            queue_s=result.queue_s,
            verify_s=result.verify_s,
            total_s=total_s,
            up_bits=0 if exchange is None else exchange.up_bits,
            down_bits=0 if exchange is None else exchange.down_bits,
            slo_class=None if judgement is None else self._generation.request.slo.name,
            late=None if judgement is None else judgement.late,
            behind=judgement is not None and judgement.behind,
        )
