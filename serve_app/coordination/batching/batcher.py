"""Queues blocks for one verifier and lets a scheduling policy choose the blocks of its next steps.

The verifier does not wait for the batcher between steps: it steps over everything it was given, as far as grants go,
and streams the outcomes of each step. The batcher plans (``outrider.scheduling.steps``) as soon as a block waits, and
again at every step while one still waits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Protocol

from actors.messages import StepReply, VerifyCall
from outrider.contracts.accounts import Account
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.errors import GenerationFailedError, VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import (
    RATIO_RULES,
    Block,
    OpenGeneration,
    PromptLookupGrant,
    Resolution,
    Unfinished,
)
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.events import VerifyResult
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.states import RoundEvent
from outrider.scheduling.crash_suspects import CrashSuspects
from outrider.scheduling.policy import BatchLimits, SchedulingPolicy
from outrider.scheduling.steps import StepPlanner
from serve_app.coordination.batching.blocks_in_progress import BlocksInProgress
from serve_app.coordination.batching.next_call import NextCall
from serve_app.coordination.batching.queued_blocks import Follower, QueuedBlock, RoundOutcomes
from serve_app.coordination.batching.scheduler_work import SchedulerWork, counted
from serve_app.coordination.batching.step_watch import Doubt, StepWatch
from serve_app.coordination.reporting.statistics import BatchRecord
from serve_app.coordination.reporting.tracing import ResponseTraces

_CLOSING_S = 0.05  # longest wait of a closing for other content to share its call with
_NO_TERMS = VerifyTerms()

log = logging.getLogger(__name__)


class SteppedVerifier(Protocol):
    def give(self, call: VerifyCall) -> None:
        """Send a call; do not wait for its delivery."""
        ...

    def steps(self) -> AsyncIterator[StepReply]:
        """Yield one reply per step; raise ``VerifierLostError`` once the verifier is lost."""
        ...

    def kill_hung(self) -> None:
        """End a verifier that missed its step deadline, so that ``steps`` raises."""
        ...


@dataclass(frozen=True, slots=True)
class Planning:
    policy: SchedulingPolicy
    limits: BatchLimits  # of a step; the size of KV memory comes with the verifier's first reply
    block_tokens: int = 16  # positions per KV block
    deadline_s: float = inf  # the verifier is killed if a step takes longer


class Batcher:
    """Owns the queue of one verifier. All methods run on the coordinator's event loop."""

    def __init__(
        self,
        verifier: SteppedVerifier,
        planning: Planning,
        estimator: OnlineEstimator,
        observe: Callable[[BatchRecord], None],
        clock: Callable[[], float],
        doubt: Doubt | None = None,
        traces: ResponseTraces | None = None,
    ) -> None:
        """Start with an empty queue. No other caller may send ``verifier`` calls, as calls are numbered here.

        ``observe`` is called once per step. ``doubt`` says when to probe a verifier that has been silent; None: never.
        """
        self._verifier = verifier
        self._traces, self._planning = traces, planning
        self._planner = StepPlanner(planning.policy, planning.limits)
        self._estimator = estimator
        self._observe, self._clock = observe, clock
        self.work = SchedulerWork()
        self._call = NextCall()
        self._blocks = BlocksInProgress(self._planner, self._call)
        self._min_survival: dict[GenerationId, float] = {}  # of an ordered draft, as it was at the time of the order
        self._crash_suspects = CrashSuspects()  # generations whose pass may have ended the verifier's process
        self._named: tuple[GenerationId, ...] = ()  # suspects that the verifier named in its last reply
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Handle | None = None
        self._watch = StepWatch(planning.deadline_s, verifier.kill_hung, self._fail_silent, doubt)

    @property
    def queued_blocks(self) -> int:
        """Number of blocks and autonomous runs that wait for a step."""
        return self._planner.waiting

    def kv_is_short(self) -> bool:
        """Return whether responses with a promise need more KV blocks than the verifier has, and some were evicted."""
        return self._planner.kv_is_short

    @property
    def cost_model(self) -> LinearCostModel:
        return self._estimator.model

    def suspects(self, generation: GenerationId) -> bool:
        """Return whether a generation may have crashed the verifier.

        A suspect must not continue at another verifier before it is cleared, as it could crash that one, too.
        """
        return generation in self._crash_suspects.names

    @property
    def idle(self) -> bool:
        return not self._planner.running

    def expect(self, generation: GenerationId, within_s: float, due_at_s: float = inf) -> None:
        """Note that a draft was ordered: it is expected in ``within_s`` and has to be committed by ``due_at_s``."""
        self._call.due_at_s[generation] = due_at_s
        self._planner.expect(generation, self._clock() + within_s)
        self._min_survival[generation] = self._planner.min_survival

    async def verify(
        self,
        block: Block,
        cost: VerifyCost,
        opening: OpenGeneration | None,
        observe: Callable[[RoundEvent], object],
        terms: VerifyTerms = _NO_TERMS,
    ) -> VerifyResult:
        """Verify one block over as many steps as its prefix needs; ``follow`` delivers what its autonomous run makes.

        Cancelling withdraws the block while it waits; a block that the verifier has stays there until ``close``.
        ``observe`` is called with DISPATCHED when the block is sent to the verifier.

        Raises:
            VerifierLostError: the verifier died or hung; nothing of this round is committed.
            RequestFailedError: the verifier died again with this block alone in its steps.
            GenerationFailedError: the next step could not be planned.
        """
        name = block.generation
        outcomes = self._blocks.outcomes[name] = RoundOutcomes()
        queued = QueuedBlock(block, opening, observe, outcomes, cost, terms, self._planning.block_tokens, self._clock())
        min_survival = self._min_survival.pop(name, 0.0)
        if block.rule in RATIO_RULES:  # under ratio rules a cut that depends on the arrival time would bias the output
            queued.min_survival = min_survival
        if (resident := self._blocks.resident.get(name)) is not None:
            queued.note_evicted(resident)
        self._blocks.add(queued)
        self._send_soon()
        try:
            return await outcomes.next()
        finally:
            if self._blocks.queued.get(name) is queued and not queued.at_verifier:
                self._blocks.forget(name)

    def join(
        self, block: Block, cost: VerifyCost, observe: Callable[[RoundEvent], object], terms: VerifyTerms = _NO_TERMS
    ) -> None:
        """Verify a block in place of the generation's autonomous run; the run's follower receives its outcome.

        The follower first receives the rounds that the verifier still makes before it has the block.
        """
        name, now_s, blocks = block.generation, self._clock(), self._blocks
        before, outcomes = blocks.queued.get(name), blocks.outcomes[name]
        since_s = now_s if before is None or not self._planner.waits(name) else before.since_s  # keeps its position
        queued = QueuedBlock(block, None, observe, outcomes, cost, terms, self._planning.block_tokens, since_s)
        queued.overtakes = before if before is not None and before.at_verifier else None
        for waiting in outcomes.waiting:  # not delivered yet, so the block was made without them
            queued.rebase(waiting.outcome, now_s)
        self._call.drop_grant(name)  # of the autonomous run
        blocks.add(queued)
        self._send_soon()

    def follow(self, generation: GenerationId, follower: Follower) -> None:
        """Deliver each round of an autonomous run, or the error that ends it, until the follower returns False."""
        outcomes = self._blocks.outcomes[generation]
        if outcomes.empty and generation not in self._blocks.queued:
            outcomes.fail(VerifierLostError(f"no block of {generation} is in progress"))
        outcomes.follow(follower)

    def promised(self, generation: GenerationId, terms: VerifyTerms) -> None:
        """Set deadline and expected tokens of an autonomous run's next round."""
        if (queued := self._blocks.queued.get(generation)) is not None and queued.overtakes is None:
            queued.terms = terms

    def extend(self, generation: GenerationId, until_round: int, lookup: PromptLookupGrant | None = None) -> None:
        """Extend a run's grant to ``until_round`` and set its prompt lookup; queue a run whose grant was used up."""
        if self._blocks.extend(generation, until_round, lookup):
            self._send_soon()

    async def resolve(self, resolution: Resolution) -> VerifyResult:
        """Send the resolution of an undecided round and return its outcome; the verifier computes no pass for it."""
        if self._blocks.resolve(resolution, self._clock()):
            self._send_soon()
        return await self._blocks.outcomes[resolution.generation].next()

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Release a generation at the verifier, with the next call or with one of its own 50 ms later."""
        self._min_survival.pop(generation, None)
        self._crash_suspects = self._crash_suspects.over(generation)
        self._blocks.close(generation)
        self._call.close(generation, keep_cache=keep_cache)
        if self._planner.waiting:
            self._send_soon()
        elif self._sending is None:
            self._sending = asyncio.get_running_loop().call_later(_CLOSING_S, self._send)

    @contextmanager
    def charged(self, generation: GenerationId, account: Account) -> Iterator[None]:
        """Charge a response's prefill to ``account`` within the context."""
        self._blocks.accounts[generation] = account
        try:
            yield
        finally:
            del self._blocks.accounts[generation]

    def _send_soon(self) -> None:
        """Send on the next turn of the event loop, so that blocks that become ready in one turn share a call."""
        if isinstance(self._sending, asyncio.TimerHandle):  # a closing or a hold waits longer than this may
            self._sending.cancel()
            self._sending = None
        if self._sending is None:
            self._sending = asyncio.get_running_loop().call_soon(self._send)

    @counted
    def _send(self) -> None:
        """Send everything that is pending in one call, with the blocks that the plan lets in."""
        self._sending = None
        try:
            plan = self._planner.plan(self._clock(), self.cost_model, self._crash_suspects.names)
            if plan.hold_s:
                self._sending = asyncio.get_running_loop().call_later(plan.hold_s, self._send)
            let_in = self._blocks.let_in(plan)
        except Exception as error:
            log.exception("planning_failed")
            # All waiting blocks fail: they would wait for ever, and the exception does not say which of them caused it.
            reason = f"the verifier's next step cannot be planned: {error!r:.200}"
            self._blocks.fail_waiting(GenerationFailedError(reason))
            let_in = []
        call = self._call.take(let_in, self._clock())
        if call is None:
            return
        if self._listening is None or self._listening.done():  # before ``give``: a new stream has no earlier replies
            self._listening = asyncio.get_running_loop().create_task(self._listen(self._verifier.steps()))
        self._verifier.give(call)
        if not self._watch.on:
            self._watch_over()

    def stop(self) -> None:
        """Stop listening and sending; blocks under way get no outcome."""
        self._watch.stop()
        for task in (self._listening, self._sending):
            if task is not None:
                task.cancel()

    async def _listen(self, steps: AsyncIterator[StepReply]) -> None:
        """Settle the reply of each step; when the stream ends by any error, fail all who wait for the verifier."""
        try:
            async for reply in steps:
                self._settle(reply)
        except VerifierLostError as error:
            self._lost(error)
        except Exception as error:
            log.exception("listening_failed")
            self._lost(VerifierLostError(f"the verifier's reply cannot be read: {error!r:.200}"))

    def _fail_silent(self) -> None:
        """Fail the blocks of a silent verifier so that they continue elsewhere; suspect none, as no process crashed."""
        self._fail_at_verifier(VerifierLostError("the verifier is silent; its responses resume at another one"), None)

    def _lost(self, error: VerifierLostError) -> None:
        self._crash_suspects, culprit = self._crash_suspects.lost(self._planner.under_way, self._named)
        self._named = ()
        self._fail_at_verifier(error, culprit)

    def _fail_at_verifier(self, error: VerifierLostError, culprit: GenerationId | None) -> None:
        """Fail all blocks that the verifier had; blocks it had not keep waiting, unless another verifier is ready."""
        self._blocks.fail_lost(error, culprit, waiting_too=self._watch.elsewhere)
        self._call.lost()
        if self._planner.waiting:
            self._send_soon()
        self._watch_over()

    def _watch_over(self) -> None:
        self._watch.anew(under_way=bool(self._planner.running) or self._blocks.resolving_at_verifier)

    @counted
    def _settle(self, reply: StepReply) -> None:
        now_s, blocks, current = self._clock(), 0, reply.session == self._call.session  # others precede a loss
        self._named = reply.suspects
        if reply.computed:  # a step without a pass says nothing about the duration of one with a pass
            self._watch.took(reply.engine_s)
        self._planner.note_step()
        predicted_s, reason = self.cost_model.predict_s(reply.computed), self._planner.reason
        if self._traces is not None and current:
            self._traces.stepped(reply, predicted_s, reason, now_s)
        for outcome in reply.outcomes if current else ():
            if not isinstance(outcome, Unfinished):
                self._crash_suspects = self._crash_suspects.decided(outcome.generation)
            blocks += self._blocks.settle(outcome, reply, now_s)
        self._observe(BatchRecord(blocks, reason, predicted_s, reply.engine_s, reply.idle_s, reply.usage, reply.faults))
        if not reply.faults:  # a failed pass is repeated in parts, which the cost model does not predict
            self._estimator = self._estimator.observed(reply.computed, reply.engine_s)
        for name, resident in reply.evicted if current else ():
            self._blocks.evicted(name, resident)
        self._planner.set_memory_blocks(reply.usage.total_blocks)
        if self._planner.is_due:
            self._send_soon()
        self._watch_over()
