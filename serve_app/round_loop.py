"""The round loop of one generation: draft, verify, commit, stream - until the response ends.

All decisions are taken by pure code (``outrider.generation``, ``outrider.selection``, the verifier's rule); this file
waits for drafter and verifier and survives the loss of either.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from outrider.engines.base import AcceptanceRule, Block, Refused, Verified
from outrider.errors import ContextTooLongError, GenerationFailedError, OutriderError, VerifierLostError
from outrider.events import event
from outrider.generation import Committed, Generation, GenerationEvent, GenerationState, RoundEvent
from outrider.scheduling.cost_model import VerifyCost
from outrider.selection import RoundSituation, choose_window
from outrider.text import IncrementalText
from outrider.types import FinishReason, GenerationChunk, TextSpan, TokenOrigin
from serve_app import metrics
from serve_app.batcher import Batcher, VerifyResult, block_tokens
from serve_app.drafter_link import DrafterLink, Exchange
from serve_app.metrics import Sink
from serve_app.round_timing import RoundTiming

log = logging.getLogger(__name__)

_MAX_VERIFIER_LOSSES = 5  # in a row, without a committed round between them


@dataclass(frozen=True, slots=True)
class RoundServices:
    """What a round loop works with; shared by all generations of a coordinator."""

    batcher: Batcher
    await_verifier: Callable[[], Coroutine[Any, Any, None]]  # returns once the verifier answers; raises if it is gone
    configured_window: int  # 0 where there are no drafters
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
        requested = generation.request.window
        self._window = services.configured_window if requested is None else requested
        self._rule = acceptance_rule(generation)
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
            if self._window > 0:
                self._link.start()
            while not finished:
                committed = await self._round()
                if committed is not None:
                    chunk = self._chunk(committed)
                    finished = chunk.finish_reason is not None
                    if finished:
                        generation.happened(GenerationEvent.ENDED)
                    yield chunk
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

    async def _round(self) -> Committed | None:
        """One round; None if it came to nothing (a process was lost) and another is to be tried."""
        began_at_s = time.monotonic()
        number, exchange = await self._drafted()
        block = self._block(number, exchange)
        try:
            result = await self._verified(block)
        except VerifierLostError:
            await self._recover(number)
            return None
        if isinstance(result.outcome, Refused):
            raise ContextTooLongError(result.outcome.reason)
        if not isinstance(result.outcome, Verified):
            # Unknown or stale: the verifier has not this generation's committed sequence. Open it again.
            await self._recover(number)
            return None
        committed = self._generation.commit(result.outcome, block.draft, block.forced)
        self._losses = 0
        timing = _timing(exchange, result, result.outcome, committed, time.monotonic() - began_at_s)
        self._services.observe(timing)
        return committed

    async def _drafted(self) -> tuple[int, Exchange | None]:
        """Number the round and have its block drafted, if a drafter is ready."""
        generation = self._generation
        window = choose_window(
            RoundSituation(
                window=self._window,
                remaining_tokens=generation.remaining_tokens,
                drafter_ready=self._link.ready,
            )
        )
        number = generation.begin_round(drafting=window > 0)
        if window == 0:
            return number, None
        exchange = await self._link.draft(number, window, time.monotonic)
        if exchange is not None:
            generation.round_happened(number, RoundEvent.BLOCK_ARRIVED)
            return number, exchange
        generation.round_happened(number, RoundEvent.DRAFTER_LOST)
        return generation.begin_round(drafting=False), None

    def _block(self, number: int, exchange: Exchange | None) -> Block:
        return Block(
            generation=self._generation.name,
            round=number,
            position=self._generation.position,
            prefix_hash=self._generation.prefix_hash,
            draft=() if exchange is None else exchange.draft.token_ids,
            rule=self._rule,
        )

    async def _verified(self, block: Block) -> VerifyResult:
        generation = self._generation
        opening, cost = None, VerifyCost(len(block.draft) + 1, block.position - 1)
        if not self._held_by_verifier:
            opening = generation.opening()
            cost = VerifyCost(block_tokens(block), 0)
        generation.round_happened(block.round, RoundEvent.ENQUEUED)
        observe = partial(generation.round_happened, block.round)
        result = await self._services.batcher.verify(block, cost, opening, observe)
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
        text, spans, consumed, stopped = self._text, list[TextSpan](), 0, False
        for token_id, origin in zip(committed.token_ids, committed.origins, strict=True):
            piece = text.push((token_id,))
            consumed += 1
            stopped = piece.stopped
            _add_span(spans, piece.text, origin)
            if stopped:
                break
        finish = FinishReason.STOP if stopped else committed.finish
        self._generation.swallowed(committed.origins[consumed:])
        if finish is not None and not stopped:
            _add_span(spans, text.finish(), committed.origins[-1])
        return GenerationChunk(
            token_ids=committed.token_ids[:consumed],
            spans=tuple(spans),
            stats=self._generation.stats,
            shown_tokens=text.shown_tokens,
            logprobs=committed.logprobs[:consumed],
            prompt_logprobs=committed.prompt_logprobs,
            finish_reason=finish,
        )


def _add_span(spans: list[TextSpan], text: str, origin: TokenOrigin) -> None:
    """Lengthen the last span, or begin another."""
    if spans and spans[-1].origin is origin:
        spans[-1] = TextSpan(spans[-1].text + text, origin)
    elif text:
        spans.append(TextSpan(text, origin))


def _timing(
    exchange: Exchange | None, result: VerifyResult, outcome: Verified, committed: Committed, total_s: float
) -> RoundTiming:
    return RoundTiming(
        drafted_tokens=0 if exchange is None else len(exchange.draft.token_ids),
        accepted_tokens=outcome.accepted_len,
        committed_tokens=len(committed.token_ids),
        draft_s=0.0 if exchange is None else exchange.draft_s,
        link_s=0.0 if exchange is None else exchange.link_s,
        queue_s=result.queue_s,
        verify_s=result.verify_s,
        total_s=total_s,
    )


def acceptance_rule(generation: Generation) -> AcceptanceRule:
    """Greedy requests are verified greedily; sampled ones by shared noise, which is exact for every drafter."""
    return AcceptanceRule.GREEDY if generation.request.params.greedy else AcceptanceRule.SHARED_NOISE
