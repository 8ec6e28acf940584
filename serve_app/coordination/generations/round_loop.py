"""Runs the rounds of one generation: carries out the effects of ``outrider.rounds.machine`` until the response ends.

The loop awaits drafter and verifier and feeds what happened back to the machine. It decides nothing itself.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from outrider.admission.rounds import MeasuredRounds
from outrider.contracts.errors import OutriderError, VerifierLostError
from outrider.contracts.requests import GenerationChunk
from outrider.events import event
from outrider.rounds.events import (
    AskAgain,
    AskDrafter,
    AwaitDraft,
    AwaitDrafter,
    Awaited,
    AwaitVerifier,
    DrafterAnswered,
    Event,
    Extend,
    Fail,
    Follow,
    Incident,
    Join,
    Measured,
    OrderAhead,
    Report,
    Resolve,
    RoundInput,
    Send,
    VerifierAnswered,
    Verify,
    VerifyResult,
)
from outrider.rounds.generation import Generation
from outrider.rounds.machine import RoundMachine
from outrider.rounds.present_load import PresentLoad
from outrider.rounds.states import GenerationEvent, GenerationState
from outrider.rounds.timing import RoundTiming
from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from outrider.tracing.responses import ResponseTrace
from serve_app import metrics
from serve_app.coordination.batching.batcher import Batcher
from serve_app.coordination.credit import Credit
from serve_app.coordination.drafting.drafter_link import DrafterLink
from serve_app.metrics import Metric, Sink

_COUNTED: dict[Incident, Metric] = {
    Incident.CANDIDATES_REFUSED: metrics.CANDIDATE_FALLBACKS,
    Incident.CORRECTION_GIVEN_UP: metrics.CORRECTIONS_GIVEN_UP,
    Incident.DRAFT_GIVEN_UP: metrics.DRAFTS_GIVEN_UP,
    Incident.ROUND_LOST: metrics.VERIFIER_LOSSES,
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoundServices:
    """Dependencies of a round loop; all but ``trace`` are shared by the generations of a coordinator."""

    batcher: Batcher
    await_verifier: Callable[[], Coroutine[Any, Any, None]]  # returns once the verifier answers; raises if it is lost
    load: PresentLoad
    tuner: SpeculationTuner
    observe: Callable[[RoundTiming], None]  # called once per committed round
    sink: Sink
    clock: Callable[[], float]
    measured: MeasuredRounds = field(default_factory=MeasuredRounds)  # without each response's first round
    trace: ResponseTrace | None = None  # of the response, if it is sampled


class RoundLoop:
    def __init__(
        self,
        rounds: RoundMachine,
        link: DrafterLink,
        services: RoundServices,
        put: Callable[[GenerationChunk], None],
        credit: Credit,
    ) -> None:
        """Take over the rounds and the drafter link of a generation in state NEW.

        ``put`` is called with each committed chunk. No round begins while ``credit`` is used up.
        """
        self._rounds = rounds
        self._generation = rounds.generation
        self._link = link
        self._services = services
        self._put, self._credit = put, credit
        self._drafter_wanted = self._has_asked = self._has_begun = False
        self._ahead: asyncio.Task[DrafterAnswered] | None = None  # draft ordered ahead, until the machine has it
        self._verifying = False  # a round is with the verifier
        self._failed: BaseException | None = None  # raised in a task's callback, to be raised again in ``run``

    async def run(self) -> None:
        """Commit round after round; the last chunk carries the finish reason and the statistics.

        Cancelling ends the response: the drafter is released and the verifier drops the generation.

        Raises:
            ContextTooLongError: the prompt does not fit the verifier.
            RequestFailedError: the verifier fails at this request.
            GenerationFailedError: the verifier was lost repeatedly.
            VerifierLostError: the verifier was lost and did not come up again in time.
        """
        generation, reason = self._generation, None
        generation.happened(GenerationEvent.STARTED)
        request = generation.request
        self._log("generation_started", prompt_tokens=len(request.prompt_ids), resumed_tokens=len(request.output_ids))
        try:
            answer: Event | None = None
            while generation.state is GenerationState.ACTIVE:
                if answer is None:  # between rounds: a round under way never waits for the reader
                    await self._wait_for_reader()
                awaited = self._step(answer or self._round_input())
                answer = None if awaited is None else await self._carry_out(awaited)
        except Exception as error:
            generation.happened(GenerationEvent.FAULT)
            reason = str(error) if isinstance(error, OutriderError) else f"{type(error).__name__}: {error}"
            raise
        finally:
            if generation.state is GenerationState.ACTIVE:
                generation.happened(GenerationEvent.CLIENT_LEFT)
            stats = generation.stats
            costs: dict[str, object] = {
                "rounds": stats.rounds,
                "drafted": stats.drafted_tokens,
                "accepted": stats.accepted_tokens,
                **({"judged": stats.judged_tokens, "overrides": stats.overrides} if stats.judged_tokens else {}),
            }
            self._log(f"generation_{generation.state}", tokens=len(generation.output_ids), reason=reason, **costs)
            self._services.sink.record(metrics.DRAFTER_LOSSES, self._link.losses)
            if self._ahead is not None:
                self._ahead.cancel()
            self._link.close()
            if self._has_asked:
                self._services.tuner.ended(generation.name, self._services.clock())
            # What was committed is right, whoever stopped reading: others share it, and the client may come again.
            self._services.batcher.close(generation.name, keep_cache=generation.state is not GenerationState.FAILED)

    def _step(self, event: Event) -> Awaited | None:
        """Step the machine, carry out the effects that need no await, and return the one effect that does."""
        if self._failed is not None:
            raise self._failed
        for effect in self._rounds.step(event, self._services.clock()):
            if isinstance(effect, Send):
                self._put(effect.chunk)
            elif isinstance(effect, Extend):
                self._services.batcher.extend(self._generation.name, effect.until_round, effect.lookup)
            elif isinstance(effect, Report | Measured):
                self._report(effect)
            elif isinstance(effect, OrderAhead):
                self._ahead = asyncio.create_task(self._link.draft(effect.asked))
                self._ahead.add_done_callback(self._came)
            elif isinstance(effect, Join):
                observe = partial(self._rounds.moved, effect.block.round)
                self._services.batcher.join(effect.block, effect.cost, observe, effect.terms)
            else:
                return effect
        return None

    def _came(self, ahead: asyncio.Task[DrafterAnswered]) -> None:
        """Feed the draft ordered ahead, or its failure, to the machine while a round is with the verifier.

        Without such a round ``run`` is at work and takes the draft by ``AwaitDraft`` or by ``_verified``.
        """
        if ahead is not self._ahead or ahead.cancelled():
            return
        if not self._verifying or self._generation.state is not GenerationState.ACTIVE:
            return
        self._ahead = None
        try:
            awaited = self._step(ahead.result())
            assert awaited is None, "something else is waited for"
        except BaseException as error:  # noqa: BLE001 (a callback has no caller; ``_step`` raises it in ``run``)
            self._failed = error

    async def _wait_for_reader(self) -> None:
        if self._credit.left:
            return
        clock = self._services.clock
        since_s = clock()
        await self._credit.restored()
        self._rounds.paused(clock() - since_s)

    def _round_input(self) -> RoundInput:
        services = self._services
        mode = services.tuner.mode
        if not self._drafter_wanted and self._wants_drafter(mode):
            self._drafter_wanted = True
            self._link.start()
        drafter = self._link.drafter
        if drafter is not None and drafter.view is not None:
            services.tuner.ready(self._generation.name)
        return RoundInput(drafter, services.load.view(services.batcher.cost_model, services.tuner.mode), mode)

    def _wants_drafter(self, mode: SpeculationMode) -> bool:
        rounds = self._rounds
        pending = self._generation.correction_by is not None
        return rounds.needs_drafter and (pending or mode.needs_drafters or not rounds.drafting_follows_tuner)

    def _measured(self, timing: RoundTiming) -> None:
        """Record a committed round. For the tuner a response is active from its first commit on."""
        services, name = self._services, self._generation.name
        services.observe(timing)
        now_s = services.clock()
        if services.trace is not None:
            services.trace.round(timing, now_s)
        if self._has_begun:
            late = None if timing.slo_class is None else timing.late is not None
            services.tuner.round(name, timing.committed_tokens, timing.total_s, now_s, late=late)
            rows = timing.drafted_tokens - timing.trimmed_tokens + 1
            away_s = timing.total_s - timing.queue_s - timing.verify_s
            services.measured.round(rows, timing.committed_tokens, away_s, timing.mode)
        else:
            self._has_begun = True
            _note_prefill(services.sink, self._generation, timing)
            services.tuner.began(name, now_s, counts=self._rounds.follows_tuner)

    def _report(self, effect: Report | Measured) -> None:
        if isinstance(effect, Measured):
            self._measured(effect.timing)
        else:
            services = self._services
            services.sink.record(_COUNTED[effect.incident])
            if services.trace is not None:
                services.trace.happened(effect.incident, services.clock(), **effect.fields)
            self._log(effect.incident, logging.WARNING, **effect.fields)

    async def _carry_out(self, effect: Awaited) -> Event | None:
        """Await one effect; return its result as an event, or None if the machine needs no event for it."""
        services = self._services
        event: Event | None = None
        match effect:
            case AskDrafter():
                services.batcher.expect(self._generation.name, effect.expected_s, effect.due_at_s)
                return await self._link.draft(effect)
            case AskAgain():
                return await self._link.ask_again(effect)
            case AwaitDraft():
                assert self._ahead is not None, "what is ordered is told once"
                ahead, self._ahead = self._ahead, None
                return await ahead
            case Verify():
                return await self._verified(effect)
            case Follow():
                self._verifying = True
                awaited = await self._follow(effect)
                event = None if awaited is None else await self._carry_out(awaited)
            case Resolve(resolution):
                event = VerifierAnswered(resolution.round, await _unless_lost(services.batcher.resolve(resolution)))
            case AwaitDrafter(until_s):
                await self._link.wait_ready(until_s - services.clock())
            case AwaitVerifier():
                await services.await_verifier()
            case Fail(error):
                raise error
        return event

    async def _verified(self, effect: Verify) -> VerifierAnswered:
        services, block = self._services, effect.block
        if not self._has_asked:
            self._has_asked = True
            services.tuner.asked(self._generation.name)
        observe = partial(self._rounds.moved, block.round)
        verified = services.batcher.verify(block, effect.cost, effect.opening, observe, effect.terms)
        self._verifying = True
        if self._ahead is not None and self._ahead.done():  # ``_came`` ran before ``_verifying`` was set
            asyncio.get_running_loop().call_soon(self._came, self._ahead)  # later: the batcher must have the block
        result = await _unless_lost(verified)
        self._verifying = False
        return self._decided(block.round, result, asks=block.autonomous_run is not None and bool(block.draft))

    def _decided(self, number: int, result: VerifyResult | None, *, asks: bool) -> VerifierAnswered:
        """Return the event for a round's outcome, or for that of the draft ordered ahead, which took its place."""
        if result is not None and result.outcome.round != number:
            number, asks = result.outcome.round, True
        return VerifierAnswered(number, result, self._round_input() if asks else None, self._credit.left)

    async def _follow(self, follow: Follow) -> Awaited | None:
        """Follow an autonomous run by a callback, as a wake-up per token costs much; return what to await after it."""
        batcher, name = self._services.batcher, self._generation.name
        over: asyncio.Future[Awaited | None] = asyncio.get_running_loop().create_future()

        def follower(result: VerifyResult | Exception) -> bool:
            nonlocal follow
            if over.done():  # the response was cancelled
                return False
            if isinstance(result, Exception) and not isinstance(result, VerifierLostError):
                over.set_exception(result)
                return False
            came = None if isinstance(result, VerifierLostError) else result
            try:
                awaited = self._step(self._decided(follow.round, came, asks=follow.asks))
            except BaseException as error:  # noqa: BLE001 (raised by ``await over`` in the response's task)
                over.set_exception(error)
                return False
            if not isinstance(awaited, Follow):
                self._verifying = False  # at once: ``_came`` may run before ``await over`` returns
                over.set_result(awaited)
                return False
            follow = awaited
            batcher.promised(name, follow.terms)
            return True

        batcher.promised(name, follow.terms)
        context = contextvars.copy_context()  # the batcher's task has another request's context: tasks begun need ours
        batcher.follow(name, lambda result: context.run(follower, result))
        return await over

    def _log(self, name: str, level: int = logging.INFO, /, **fields: object) -> None:
        event(log, name, level, **self._generation.log_names, **fields)


async def _unless_lost(verified: Coroutine[Any, Any, VerifyResult]) -> VerifyResult | None:
    """Return the result, or None if the verifier was lost: to the machine that is an outcome, not an error."""
    try:
        return await verified
    except VerifierLostError:
        return None


def _note_prefill(sink: Sink, generation: Generation, timing: RoundTiming) -> None:
    request, cached = generation.request, generation.stats.cached_tokens
    if request.output_ids:  # resumed: its client has had a token
        return
    sink.record(metrics.FIRST_TOKEN_PHASE_S, timing.queue_s, phase="queue")
    sink.record(metrics.FIRST_TOKEN_PHASE_S, timing.verify_s, phase="prefill")
    sink.record(metrics.PREFIX_TOKENS, cached, outcome="hit")
    sink.record(metrics.PREFIX_TOKENS, max(0, len(request.prompt_ids) - cached), outcome="miss")
