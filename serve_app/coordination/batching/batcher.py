"""Queues blocks for one verifier and lets a scheduling policy choose the blocks of its next steps.

The verifier does not wait for the batcher between steps: it steps over everything it was given, as far as grants go,
and streams the outcomes of each step. The batcher plans (``outrider.scheduling.steps``) as soon as a block waits, and
again at every step while one still waits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from actors.messages import Closing, StepReply, VerifyCall
from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.errors import GenerationFailedError, RequestFailedError, VerifierLostError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import (
    RATIO_RULES,
    Block,
    BlockRefused,
    OpenGeneration,
    Outcome,
    PromptLookupGrant,
    Resolution,
    Undecided,
    Unfinished,
)
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.events import VerifyResult
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.states import RoundEvent
from outrider.scheduling.crash_suspects import CrashSuspects
from outrider.scheduling.policy import BatchLimits, SchedulingPolicy
from outrider.scheduling.steps import StepPlanner
from serve_app.coordination.batching.queued_blocks import Follower, QueuedBlock, RoundOutcomes
from serve_app.coordination.batching.step_watch import Doubt, StepWatch
from serve_app.coordination.reporting.statistics import BatchRecord
from serve_app.coordination.reporting.tracing import ResponseTraces

_CLOSING_S = 0.05  # longest wait of a closing for other content to share its call with
_NO_TERMS = VerifyTerms()
_NOTHING, _NO_ORDER = VerifyCall(), VerifyCall(prefill_order=())

log = logging.getLogger(__name__)


class SteppedVerifier(Protocol):
    """A coordinator's verifier, as the batcher sees it."""

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
        """Start with an empty queue.

        Args:
            verifier: no other caller may send it calls, as calls are numbered here.
            planning: policy and limits of steps.
            estimator: predicts the duration of a step; updated after every step.
            observe: called once per step.
            clock: monotonic, in seconds.
            doubt: when to probe a verifier that has been silent; None: never.
            traces: traces of sampled responses; None: no response is traced.
        """
        self._verifier = verifier
        self._traces = traces
        self._planning = planning
        self._planner = StepPlanner(planning.policy, planning.limits)
        self._estimator = estimator
        self._observe = observe
        self._clock = clock
        self._queued: dict[GenerationId, QueuedBlock] = {}
        self._outcomes: dict[GenerationId, RoundOutcomes] = {}
        self._resolutions: dict[GenerationId, Resolution] = {}
        self._resolving: dict[GenerationId, QueuedBlock] = {}  # undecided, or resolved without an outcome so far
        self._grants: dict[GenerationId, int] = {}
        self._lookups: dict[GenerationId, PromptLookupGrant | None] = {}
        self._min_survival: dict[GenerationId, float] = {}  # of an ordered draft, as it was at the time of the order
        self._due_at_s: dict[GenerationId, float] = {}  # not sent yet
        self._resident: dict[GenerationId, int] = {}  # positions; of generations that lost KV since their last step
        self._closings: dict[GenerationId, Closing] = {}
        self._accounts: dict[GenerationId, Account] = {}
        self._prefill_order: tuple[GenerationId, ...] = ()  # as planned last
        self._sent_order: tuple[GenerationId, ...] = ()  # as sent last
        self._crash_suspects = CrashSuspects()  # generations whose pass may have ended the verifier's process
        self._named: tuple[GenerationId, ...] = ()  # suspects that the verifier named in its last reply
        self._session = self._calls = 0
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Handle | None = None
        self._watch = StepWatch(planning.deadline_s, verifier.kill_hung, self._fail_silent, doubt)

    @property
    def queued_blocks(self) -> int:
        """Number of blocks and autonomous runs that wait for a step."""
        return self._planner.waiting

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
        self._due_at_s[generation] = due_at_s
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
        now_s = self._clock()
        outcomes = self._outcomes[block.generation] = RoundOutcomes()
        until_round = block.round if block.autonomous_run is None else block.autonomous_run.until_round
        size = self._planning.block_tokens
        queued = QueuedBlock(block, opening, observe, outcomes, block.round, cost, terms, size, now_s, until_round)
        min_survival = self._min_survival.pop(block.generation, 0.0)
        if block.rule in RATIO_RULES:  # under ratio rules a cut that depends on the arrival time would bias the output
            queued.min_survival = min_survival
        self._queued[block.generation] = queued
        if (resident := self._resident.get(block.generation)) is not None:
            queued.note_evicted(resident)
        self._enqueue(block.generation, queued)
        self._send_soon()
        try:
            return await outcomes.next()
        finally:
            if self._queued.get(block.generation) is queued and not queued.at_verifier:
                self._forget(block.generation)

    def join(
        self, block: Block, cost: VerifyCost, observe: Callable[[RoundEvent], object], terms: VerifyTerms = _NO_TERMS
    ) -> None:
        """Verify a block in place of the generation's autonomous run; the run's follower receives its outcome.

        The follower first receives the rounds that the verifier still makes before it has the block.
        """
        name, now_s = block.generation, self._clock()
        before = self._queued.get(name)
        until_round = block.round if block.autonomous_run is None else block.autonomous_run.until_round
        size = self._planning.block_tokens
        since_s = now_s if before is None or not self._planner.waits(name) else before.since_s  # keeps its position
        queued = QueuedBlock(
            block, None, observe, self._outcomes[name], block.round, cost, terms, size, since_s, until_round
        )
        queued.overtakes = before if before is not None and before.at_verifier else None
        for outcomes in queued.outcomes.waiting:  # not delivered yet, so the block was made without them
            queued.rebase(outcomes.outcome, now_s)
        self._grants.pop(name, None)  # unsent grant of the autonomous run
        self._lookups.pop(name, None)
        self._queued[name] = queued
        self._enqueue(name, queued, overtakes=queued.overtakes is not None)
        self._send_soon()

    def follow(self, generation: GenerationId, follower: Follower) -> None:
        """Deliver each round of an autonomous run, or the error that ends it, until the follower returns False."""
        outcomes = self._outcomes[generation]
        if outcomes.empty and generation not in self._queued:
            outcomes.fail(VerifierLostError(f"no block of {generation} is in progress"))
        outcomes.follow(follower)

    def promised(self, generation: GenerationId, terms: VerifyTerms) -> None:
        """Set deadline and expected tokens of an autonomous run's next round."""
        if (queued := self._queued.get(generation)) is not None and queued.overtakes is None:
            queued.terms = terms

    def extend(self, generation: GenerationId, until_round: int, lookup: PromptLookupGrant | None = None) -> None:
        """Extend a run's grant to ``until_round`` and set its prompt lookup; queue a run whose grant was used up."""
        if (queued := self._queued.get(generation)) is None or not queued.at_verifier:
            return
        if queued.set_lookup(lookup):
            self._lookups[generation] = lookup
        used_up, queued.until_round = not queued.has_grant, until_round
        if used_up:
            self._enqueue(generation, queued)
        elif not self._planner.waits(generation):
            self._grants[generation] = until_round
        self._send_soon()

    async def resolve(self, resolution: Resolution) -> VerifyResult:
        """Send the resolution of an undecided round and return its outcome; the verifier computes no pass for it.

        Raises:
            VerifierLostError: as ``verify``.
        """
        if (queued := self._resolving.get(resolution.generation)) is not None:  # else lost: next() raises the error
            queued.since_s, queued.at_verifier = self._clock(), True
            self._resolutions[resolution.generation] = resolution
            self._send_soon()
        return await self._outcomes[resolution.generation].next()

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Release a generation at the verifier, with the next call or with one of its own 50 ms later."""
        self._forget(generation)
        self._crash_suspects = self._crash_suspects.over(generation)
        self._planner.over(generation)
        of_it = (self._outcomes, self._resolutions, self._resolving, self._due_at_s, self._resident)
        for held in of_it:
            held.pop(generation, None)
        self._closings[generation] = Closing(generation, keep_cache)
        if self._planner.waiting:
            self._send_soon()
        elif self._sending is None:
            self._sending = asyncio.get_running_loop().call_later(_CLOSING_S, self._send)

    @contextmanager
    def charged(self, generation: GenerationId, account: Account) -> Iterator[None]:
        """Charge a response's prefill to ``account`` within the context."""
        self._accounts[generation] = account
        try:
            yield
        finally:
            del self._accounts[generation]

    def _enqueue(self, generation: GenerationId, queued: QueuedBlock, *, overtakes: bool = False) -> None:
        account = self._accounts.get(generation, NO_ACCOUNT)
        self._planner.add(generation, queued, account, overtakes=overtakes)

    def _forget(self, generation: GenerationId) -> None:
        self._queued.pop(generation, None)
        self._grants.pop(generation, None)
        self._lookups.pop(generation, None)
        self._min_survival.pop(generation, None)
        self._planner.withdraw(generation)

    def _send_soon(self) -> None:
        """Send on the next turn of the event loop, so that blocks that become ready in one turn share a call."""
        if isinstance(self._sending, asyncio.TimerHandle):  # a closing or a hold waits longer than this may
            self._sending.cancel()
            self._sending = None
        if self._sending is None:
            self._sending = asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send everything that is pending in one call, with the blocks that the plan lets in."""
        self._sending = None
        try:
            let_in = self._let_in()
        except Exception as error:
            log.exception("planning_failed")
            self._cannot_plan(error)
            let_in = []
        call = VerifyCall(
            closings=tuple(self._closings.values()),
            openings=tuple(queued.opening for queued in let_in if queued.opening is not None),
            blocks=tuple(queued.block for queued in let_in),
            resolutions=tuple(self._resolutions.values()),
            grants=tuple(self._grants.items()),
            lookups=tuple(self._lookups.items()),
            prefill_order=None if self._prefill_order == self._sent_order else self._prefill_order,
        )
        if call in (_NOTHING, _NO_ORDER):  # no call for an emptied prefill order alone
            return
        # Ray may deliver a small call before a large one: the verifier takes calls in the order of their numbers.
        call = replace(call, dues=self._dues(), session=self._session, number=self._calls)
        self._calls += 1
        self._closings, self._resolutions, self._grants, self._lookups = {}, {}, {}, {}
        self._sent_order = self._prefill_order
        if self._listening is None or self._listening.done():  # before ``give``: a new stream has no earlier replies
            self._listening = asyncio.get_running_loop().create_task(self._listen(self._verifier.steps()))
        self._verifier.give(call)
        if not self._watch.on:
            self._watch_over()

    def _cannot_plan(self, error: Exception) -> None:
        """Fail all waiting blocks: they would wait for ever, and the exception does not say which block caused it."""
        for name, queued in list(self._queued.items()):
            if self._planner.waits(name):
                self._forget(name)
                queued.outcomes.fail(
                    GenerationFailedError(f"the verifier's next step cannot be planned: {error!r:.200}")
                )

    def _dues(self) -> tuple[tuple[GenerationId, float], ...]:
        """Return changed deadlines in seconds from now: the verifier's process has another clock."""
        now_s, (changed, self._due_at_s) = self._clock(), (self._due_at_s, {})
        return tuple((name, at_s - now_s) for name, at_s in changed.items())

    def _let_in(self) -> list[QueuedBlock]:
        """Plan, grant or withhold rounds of autonomous runs, and return the blocks to be sent."""
        plan, let_in = self._planner.plan(self._clock(), self.cost_model, self._crash_suspects.names), []
        if plan.hold_s:
            self._sending = asyncio.get_running_loop().call_later(plan.hold_s, self._send)
        if plan.prefill_order is not None:
            self._prefill_order = plan.prefill_order
        for name, draft_tokens in plan.cuts:
            self._queued[name].cut(draft_tokens)
        for name in plan.held_back:
            queued = self._queued[name]
            self._grants[name] = (queued.overtakes or queued).round - 1
            self._due_at_s[name] = queued.terms.deadline_at_s
        for name in plan.joining:
            queued = self._queued[name]
            if queued.at_verifier:
                self._grants[name] = queued.until_round
            else:
                queued.at_verifier = True
                self._due_at_s[name] = queued.terms.deadline_at_s
                self._resident.pop(name, None)
                self._grants.pop(name, None)  # of an autonomous run that it overtakes
                self._lookups.pop(name, None)
                let_in.append(queued)
                queued.observe(RoundEvent.DISPATCHED)
        return let_in

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
        self._fail_at_verifier(
            VerifierLostError("the verifier is silent; its responses resume at another one"), culprit=None
        )

    def _lost(self, error: VerifierLostError) -> None:
        self._crash_suspects, culprit = self._crash_suspects.lost(self._planner.under_way, self._named)
        self._named = ()
        self._fail_at_verifier(error, culprit)

    def _fail_at_verifier(self, error: VerifierLostError, culprit: GenerationId | None) -> None:
        """Fail all blocks that the verifier had; blocks it had not keep waiting, unless another verifier is ready."""
        elsewhere = self._watch.elsewhere
        lost = [each for each in self._queued.values() if elsewhere or each.at_verifier or each.overtakes is not None]
        for queued in lost:
            self._forget(queued.block.generation)
        for queued in (*lost, *self._resolving.values()):
            queued.outcomes.fail(error if queued.block.generation != culprit else _poison_error(error))
        self._resolving, self._resolutions, self._grants, self._lookups = {}, {}, {}, {}
        self._resident = {}  # no KV is left; generations are opened again
        self._session, self._calls = self._session + 1, 0  # a late reply of the old session is recognised by its number
        self._prefill_order = self._sent_order = ()
        if self._planner.waiting:
            self._send_soon()
        self._watch_over()

    def _watch_over(self) -> None:
        """Restart the step deadline while anything is under way, else stop it."""
        resolving = any(queued.at_verifier for queued in self._resolving.values())
        self._watch.anew(under_way=bool(self._planner.running) or resolving)

    def _settle(self, reply: StepReply) -> None:
        now_s, blocks = self._clock(), 0
        self._named = reply.suspects
        if reply.computed:  # a step without a pass says nothing about the duration of one with a pass
            self._watch.took(reply.engine_s)
        self._planner.note_step()
        predicted_s, reason = self.cost_model.predict_s(reply.computed), self._planner.reason
        if self._traces is not None and reply.session == self._session:
            self._traces.stepped(reply, predicted_s, reason, now_s)
        for outcome in reply.outcomes if reply.session == self._session else ():  # others precede a loss
            blocks += self._settle_one(outcome, reply, now_s)
        self._observe(BatchRecord(blocks, reason, predicted_s, reply.engine_s, reply.idle_s, reply.usage, reply.faults))
        if not reply.faults:  # a failed pass is repeated in parts, which the cost model does not predict
            self._estimator = self._estimator.observed(reply.computed, reply.engine_s)
        for name, resident in reply.evicted if reply.session == self._session else ():
            self._evicted(name, resident)
        self._planner.set_memory_blocks(reply.usage.total_blocks)
        if self._planner.is_due:
            self._send_soon()
        self._watch_over()

    def _evicted(self, generation: GenerationId, resident_tokens: int) -> None:
        """Correct the cost of a generation's next block after the verifier evicted its KV."""
        if generation not in self._outcomes:  # closed meanwhile
            return
        queued = self._queued.get(generation)
        if queued is not None:
            queued.note_evicted(resident_tokens)
        if queued is None or not queued.at_verifier:
            self._resident[generation] = resident_tokens

    def _settle_resolved(self, outcome: Outcome, now_s: float) -> None:
        queued = self._resolving.get(outcome.generation)
        if queued is None or outcome.round != queued.round:
            return
        queued.at_verifier = False
        if not isinstance(outcome, BlockRefused):  # after a refusal another resolution may follow
            del self._resolving[outcome.generation]
        queued.deliver(outcome, now_s)

    def _settle_one(self, outcome: Outcome, reply: StepReply, now_s: float) -> bool:
        """Settle one outcome; an exception fails its generation alone and does not end ``_listen``."""
        name = outcome.generation
        if not isinstance(outcome, Unfinished):
            self._crash_suspects = self._crash_suspects.decided(name)
        try:
            return self._settle_outcome(outcome, reply, now_s)
        except Exception as error:
            log.exception("settling_failed")
            queued = self._queued.get(name) or self._resolving.pop(name, None)
            self._forget(name)
            if queued is not None:
                queued.outcomes.fail(RequestFailedError(f"a verifier's outcome cannot be settled: {error!r:.200}"))
            return False

    def _settle_outcome(self, outcome: Outcome, reply: StepReply, now_s: float) -> bool:
        """Settle one outcome; return whether it counts as a block of the step (resolutions and stale ones do not)."""
        name = outcome.generation
        queued = self._queued.get(name)
        if queued is not None and queued.overtakes is not None and outcome.round != queued.round:
            return self._settle_overtaken(queued, queued.overtakes, outcome, reply, now_s)
        if queued is None or not queued.at_verifier:
            self._settle_resolved(outcome, now_s)
            return False
        if outcome.round != queued.round:  # superseded: a newer block of the generation is queued
            return False
        queued.verify_s += reply.engine_s
        if name in reply.refused_openings:
            refusal = reply.refused_openings[name]
            outcome = BlockRefused(name, outcome.round, refusal.reason, refusal.too_long)
        if isinstance(outcome, Unfinished):
            queued.set_remaining(outcome.remaining_tokens)
            return True
        went_on, queued.overtakes = queued.went_on(outcome), None
        if not went_on:
            self._forget(name)
        elif not queued.has_grant:
            self._planner.withdraw(name)
        if isinstance(outcome, Undecided):
            queued.at_verifier = False  # it waits for the device's hidden states, so no step deadline applies
            self._resolving[name] = queued
        queued.deliver(outcome, now_s)
        if went_on and self._queued.get(name) is queued:  # the follower that ``deliver`` called may have replaced it
            queued.begin_run()
        return True

    def _settle_overtaken(
        self, queued: QueuedBlock, before: QueuedBlock, outcome: Outcome, reply: StepReply, now_s: float
    ) -> bool:
        """Settle a round of an autonomous run whose generation has a newer block, not verified yet."""
        if outcome.round != before.round:
            return False
        before.verify_s += reply.engine_s
        if isinstance(outcome, Unfinished):
            return True
        queued.rebase(outcome, now_s)
        if not before.went_on(outcome):
            self._forget(outcome.generation)  # the run has ended, so the newer block has nothing to join
        before.deliver(outcome, now_s)
        return True


def _poison_error(error: Exception) -> RequestFailedError:
    return RequestFailedError(f"the verifier was lost with this request alone in its steps, again: {error}")
