"""The batcher: blocks wait here for the verifier, and a pure policy picks who is in its next steps.

The verifier never waits for it: it steps whatever it was given for as long as anything is under way, and tells what
each step brought. Planning is for those who wait (``outrider.scheduling.steps``): as soon as one does, and again at
every step while one still does.
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
from outrider.rounds.account import VerifyTerms
from outrider.rounds.events import VerifyResult
from outrider.rounds.states import RoundEvent
from outrider.scheduling.crash_suspects import CrashSuspects
from outrider.scheduling.policy import BatchLimits, SchedulingPolicy
from outrider.scheduling.steps import StepPlanner
from serve_app.coordination.queued_blocks import Follower, QueuedBlock, RoundOutcomes
from serve_app.coordination.statistics import BatchRecord
from serve_app.coordination.step_watch import Doubt, StepWatch
from serve_app.coordination.tracing import ResponseTraces

_CLOSING_S = 0.05  # how long a closing waits for a call to travel with
_NO_TERMS = VerifyTerms()
_NOTHING, _NO_ORDER = VerifyCall(), VerifyCall(prefill_order=())

log = logging.getLogger(__name__)


class SteppedVerifier(Protocol):
    """A coordinator's verifier, as the batcher sees it."""

    def give(self, call: VerifyCall) -> None:
        """Tell it something, without waiting."""
        ...

    def steps(self) -> AsyncIterator[StepReply]:
        """What each of its steps brings; raises ``VerifierLostError`` once it is lost."""
        ...

    def hangs(self) -> None:
        """It owes an answer for longer than it may: end it, so that ``steps`` raises."""
        ...


@dataclass(frozen=True, slots=True)
class Planning:
    """How steps are planned."""

    policy: SchedulingPolicy
    limits: BatchLimits  # of a step; how much memory there is, the verifier tells with its first reply
    block_tokens: int = 16  # positions per KV block
    deadline_s: float = inf  # a step takes no longer on a verifier that is well


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
        """Start empty.

        Args:
            verifier: nobody else tells it anything.
            planning: of its steps.
            estimator: of a step's time; corrected by every step.
            observe: told of every step.
            clock: monotonic, in seconds.
            doubt: when the verifier is asked whether it gets on.
            traces: of sampled responses, which are told of every step.
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
        self._resolving: dict[GenerationId, QueuedBlock] = {}  # undecided, or resolved but not told yet
        self._grants: dict[GenerationId, int] = {}
        self._lookups: dict[GenerationId, PromptLookupGrant | None] = {}
        self._min_survival: dict[GenerationId, float] = {}  # of drafts that are ordered, when they were
        self._due_at_s: dict[GenerationId, float] = {}  # not told yet
        self._resident: dict[GenerationId, int] = {}  # positions, of who lost KV since it was in a step
        self._closings: dict[GenerationId, Closing] = {}
        self._accounts: dict[GenerationId, Account] = {}
        self._prefill_order: tuple[GenerationId, ...] = ()  # as planned last, ``_sent_order`` as the verifier was told
        self._sent_order: tuple[GenerationId, ...] = ()
        self._crash_suspects = CrashSuspects()  # of having cost the verifier its process
        self._named: tuple[GenerationId, ...] = ()  # by the last words of the verifier
        self._session = self._calls = 0
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Handle | None = None
        self._watch = StepWatch(planning.deadline_s, verifier.hangs, self._is_silent, doubt)

    @property
    def queued_blocks(self) -> int:
        """Blocks and autonomous runs that wait for a step."""
        return self._planner.waiting

    @property
    def cost_model(self) -> LinearCostModel:
        """As corrected by every step so far."""
        return self._estimator.model

    def suspects(self, generation: GenerationId) -> bool:
        """Whether it may have cost the verifier its process: it is not to go on at another one before that is known."""
        return generation in self._crash_suspects.names

    @property
    def idle(self) -> bool:
        """Whether the verifier has nothing to do."""
        return not self._planner.within

    def expects(self, generation: GenerationId, within_s: float, due_at_s: float = inf) -> None:
        """A draft is ordered, and should be here after so long; until ``due_at_s`` it has to be committed."""
        self._due_at_s[generation] = due_at_s
        self._planner.expects(generation, self._clock() + within_s)
        self._min_survival[generation] = self._planner.min_survival

    async def verify(
        self,
        block: Block,
        cost: VerifyCost,
        opening: OpenGeneration | None,
        observe: Callable[[RoundEvent], object],
        terms: VerifyTerms = _NO_TERMS,
    ) -> VerifyResult:
        """Have one block verified, over as many steps as its prefix needs; ``follow`` tells of its autonomous run.

        ``observe`` is told when the block is given to the verifier (DISPATCHED).

        Raises:
            VerifierLostError: the verifier died or hung; nothing of this round is committed.
            RequestFailedError: it did so with this block alone in it, again.
            GenerationFailedError: who is in the verifier's steps could not be decided.
        """
        now_s = self._clock()
        outcomes = self._outcomes[block.generation] = RoundOutcomes()
        until_round = block.round if block.autonomous_run is None else block.autonomous_run.until_round
        size = self._planning.block_tokens
        queued = QueuedBlock(block, opening, observe, outcomes, block.round, cost, terms, size, now_s, until_round)
        min_survival = self._min_survival.pop(block.generation, 0.0)
        if block.rule in RATIO_RULES:  # its cut is not to depend on when it came
            queued.min_survival = min_survival
        self._queued[block.generation] = queued
        if (resident := self._resident.get(block.generation)) is not None:
            queued.is_cold(resident)
        self._arrives(block.generation, queued)
        self._send_soon()
        try:
            return await outcomes.next()
        finally:
            if self._queued.get(block.generation) is queued and not queued.given:
                self._forget(block.generation)

    def join(
        self, block: Block, cost: VerifyCost, observe: Callable[[RoundEvent], object], terms: VerifyTerms = _NO_TERMS
    ) -> None:
        """Have a block verified in place of the generation's autonomous run; the run's follower gets its outcome.

        The rounds that the verifier still makes until it has the block are told before it.
        """
        name, now_s = block.generation, self._clock()
        before = self._queued.get(name)
        until_round = block.round if block.autonomous_run is None else block.autonomous_run.until_round
        size = self._planning.block_tokens
        since_s = now_s if before is None or not self._planner.waits(name) else before.since_s  # it keeps its place
        queued = QueuedBlock(
            block, None, observe, self._outcomes[name], block.round, cost, terms, size, since_s, until_round
        )
        queued.overtakes = before if before is not None and before.given else None
        for outcomes in queued.outcomes.waiting:  # whoever made the block has not heard of these yet
            queued.behind(outcomes.outcome, now_s)
        self._grants.pop(name, None)  # the autonomous run's
        self._lookups.pop(name, None)
        self._queued[name] = queued
        self._arrives(name, queued, overtakes=queued.overtakes is not None)
        self._send_soon()

    def follow(self, generation: GenerationId, follower: Follower) -> None:
        """Deliver each round of an autonomous run, or the error that ends it, until the follower has enough."""
        outcomes = self._outcomes[generation]
        if outcomes.empty and generation not in self._queued:
            outcomes.fail(VerifierLostError(f"nothing of {generation} is under way"))
        outcomes.follow(follower)

    def promised(self, generation: GenerationId, terms: VerifyTerms) -> None:
        """What an autonomous run's next round is owed."""
        if (queued := self._queued.get(generation)) is not None and queued.overtakes is None:
            queued.terms = terms

    def extend(self, generation: GenerationId, until_round: int, lookup: PromptLookupGrant | None = None) -> None:
        """Let an autonomous run go on that far, and draft so by itself; also one whose grant is used up meanwhile."""
        if (queued := self._queued.get(generation)) is None or not queued.given:
            return
        if queued.set_lookup(lookup):
            self._lookups[generation] = lookup
        used_up, queued.until_round = not queued.has_grant, until_round
        if used_up:
            self._arrives(generation, queued)
        elif not self._planner.waits(generation):
            self._grants[generation] = until_round
        self._send_soon()

    async def resolve(self, resolution: Resolution) -> VerifyResult:
        """Give the verifier the second half of a round: it runs nothing.

        Raises:
            VerifierLostError: as ``verify``.
        """
        if (queued := self._resolving.get(resolution.generation)) is not None:  # else the verifier was lost
            queued.since_s, queued.given = self._clock(), True
            self._resolutions[resolution.generation] = resolution
            self._send_soon()
        return await self._outcomes[resolution.generation].next()

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Have the verifier forget a generation, with the next call or soon."""
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
        """While a response is made: whom its prefill is charged to."""
        self._accounts[generation] = account
        try:
            yield
        finally:
            del self._accounts[generation]

    def _arrives(self, generation: GenerationId, queued: QueuedBlock, *, overtakes: bool = False) -> None:
        account = self._accounts.get(generation, NO_ACCOUNT)
        self._planner.arrives(generation, queued, account, overtakes=overtakes)

    def _forget(self, generation: GenerationId) -> None:
        self._queued.pop(generation, None)
        self._grants.pop(generation, None)
        self._lookups.pop(generation, None)
        self._min_survival.pop(generation, None)
        self._planner.withdraw(generation)

    def _send_soon(self) -> None:
        """Once all that is ready to run has run: what comes at once travels together."""
        if isinstance(self._sending, asyncio.TimerHandle):
            self._sending.cancel()
            self._sending = None
        if self._sending is None:
            self._sending = asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Tell the verifier all there is to tell, with the blocks there is room for."""
        self._sending = None
        try:
            given = self._let_in()
        except Exception as error:
            log.exception("planning_failed")
            self._cannot_plan(error)
            given = []
        call = VerifyCall(
            closings=tuple(self._closings.values()),
            openings=tuple(queued.opening for queued in given if queued.opening is not None),
            blocks=tuple(queued.block for queued in given),
            resolutions=tuple(self._resolutions.values()),
            grants=tuple(self._grants.items()),
            lookups=tuple(self._lookups.items()),
            prefill_order=None if self._prefill_order == self._sent_order else self._prefill_order,
        )
        if call in (_NOTHING, _NO_ORDER):  # that nobody competes any more can wait
            return
        call = replace(call, dues=self._dues(), session=self._session, number=self._calls)
        self._calls += 1
        self._closings, self._resolutions, self._grants, self._lookups = {}, {}, {}, {}
        self._sent_order = self._prefill_order
        if self._listening is None or self._listening.done():
            self._listening = asyncio.get_running_loop().create_task(self._listen(self._verifier.steps()))
        self._verifier.give(call)
        if not self._watch.on:
            self._watch_over()

    def _cannot_plan(self, error: Exception) -> None:
        """Whoever waits would do so for ever. Nobody knows whose fault it is: others may be able to go on with them."""
        for name, queued in list(self._queued.items()):
            if self._planner.waits(name):
                self._forget(name)
                queued.outcomes.fail(
                    GenerationFailedError(f"the verifier's next step cannot be planned: {error!r:.200}")
                )

    def _dues(self) -> tuple[tuple[GenerationId, float], ...]:
        """By when rounds have to be committed, from now on, as far as that has changed."""
        now_s, (changed, self._due_at_s) = self._clock(), (self._due_at_s, {})
        return tuple((name, at_s - now_s) for name, at_s in changed.items())

    def _let_in(self) -> list[QueuedBlock]:
        """Who is to be given to the verifier; who is there already is granted more rounds, or is held back."""
        plan, given = self._planner.plan(self._clock(), self.cost_model, self._crash_suspects.names), []
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
            if queued.given:
                self._grants[name] = queued.until_round
            else:
                queued.given = True
                self._due_at_s[name] = queued.terms.deadline_at_s
                self._resident.pop(name, None)
                self._grants.pop(name, None)  # of an autonomous run that it overtakes
                self._lookups.pop(name, None)
                given.append(queued)
                queued.observe(RoundEvent.DISPATCHED)
        return given

    def stop(self) -> None:
        """Listen no more: what is under way is lost."""
        self._watch.stop()
        for task in (self._listening, self._sending):
            if task is not None:
                task.cancel()

    async def _listen(self, steps: AsyncIterator[StepReply]) -> None:
        """Take in what each step brings, until the verifier is lost: then nobody may wait for it for ever."""
        try:
            async for reply in steps:
                self._settle(reply)
        except VerifierLostError as error:
            self._lost(error)
        except Exception as error:
            log.exception("listening_failed")
            self._lost(VerifierLostError(f"what the verifier brought cannot be read: {error!r:.200}"))

    def _is_silent(self) -> None:
        """It may go on any moment: nobody is to blame, and whoever was given to it goes on elsewhere."""
        self._forget_all_given(VerifierLostError("the verifier does not get on, and another one does"), culprit=None)

    def _lost(self, error: VerifierLostError) -> None:
        self._crash_suspects, culprit = self._crash_suspects.lost(self._planner.under_way, self._named)
        self._named = ()
        self._forget_all_given(error, culprit)

    def _forget_all_given(self, error: VerifierLostError, culprit: GenerationId | None) -> None:
        """What was given is gone; who was not given waits on, unless there is somewhere to go on at once."""
        elsewhere = self._watch.elsewhere
        lost = [each for each in self._queued.values() if elsewhere or each.given or each.overtakes is not None]
        for queued in lost:
            self._forget(queued.block.generation)
        for queued in (*lost, *self._resolving.values()):
            queued.outcomes.fail(error if queued.block.generation != culprit else _poison_error(error))
        self._resolving, self._resolutions, self._grants, self._lookups = {}, {}, {}, {}
        self._resident = {}  # everything is gone, and opened anew
        self._session, self._calls = self._session + 1, 0
        self._prefill_order = self._sent_order = ()
        if self._planner.waiting:
            self._send_soon()
        self._watch_over()

    def _watch_over(self) -> None:
        """While something is under way, each step has to come within the deadline."""
        resolving = any(queued.given for queued in self._resolving.values())
        self._watch.anew(under_way=bool(self._planner.within) or resolving)

    def _settle(self, reply: StepReply) -> None:
        now_s, blocks = self._clock(), 0
        self._named = reply.suspects
        if reply.computed:  # a step that computes nothing is no measure of one that does
            self._watch.took(reply.engine_s)
        self._planner.steps()
        predicted_s, reason = self.cost_model.predict_s(reply.computed), self._planner.reason
        if self._traces is not None and reply.session == self._session:
            self._traces.stepped(reply, predicted_s, reason, now_s)
        for outcome in reply.outcomes if reply.session == self._session else ():  # else of a time before a loss
            blocks += self._settle_alone(outcome, reply, now_s)
        self._observe(BatchRecord(blocks, reason, predicted_s, reply.engine_s, reply.idle_s, reply.usage, reply.faults))
        if not reply.faults:  # else it took several passes
            self._estimator = self._estimator.observed(reply.computed, reply.engine_s)
        for name, resident in reply.evicted if reply.session == self._session else ():
            self._evicted(name, resident)
        self._planner.has_memory(reply.usage.total_blocks)
        if self._planner.is_due:
            self._send_soon()
        self._watch_over()

    def _evicted(self, generation: GenerationId, resident_tokens: int) -> None:
        """It lost KV: its next block is a cold one."""
        if generation not in self._outcomes:  # it is over
            return
        queued = self._queued.get(generation)
        if queued is not None:
            queued.is_cold(resident_tokens)
        if queued is None or not queued.given:
            self._resident[generation] = resident_tokens

    def _settle_resolved(self, outcome: Outcome, now_s: float) -> None:
        queued = self._resolving.get(outcome.generation)
        if queued is None or outcome.round != queued.round:
            return
        queued.given = False
        if not isinstance(outcome, BlockRefused):  # what does not fit may be resolved otherwise
            del self._resolving[outcome.generation]
        queued.deliver(outcome, now_s)

    def _settle_alone(self, outcome: Outcome, reply: StepReply, now_s: float) -> bool:
        """The same; what goes wrong with it is of its generation alone."""
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
        """Whether it was a block's, or of a round that followed one."""
        name = outcome.generation
        queued = self._queued.get(name)
        if queued is not None and queued.overtakes is not None and outcome.round != queued.round:
            return self._settle_overtaken(queued, queued.overtakes, outcome, reply, now_s)
        if queued is None or not queued.given:
            self._settle_resolved(outcome, now_s)
            return False
        if outcome.round != queued.round:  # nobody waits for it any more
            return False
        queued.verify_s += reply.engine_s
        if name in reply.refused_openings:
            refusal = reply.refused_openings[name]
            outcome = BlockRefused(name, outcome.round, refusal.reason, refusal.too_long)
        if isinstance(outcome, Unfinished):
            queued.remains(outcome.remaining_tokens)
            return True
        went_on, queued.overtakes = queued.went_on(outcome), None
        if not went_on:
            self._forget(name)
        elif not queued.has_grant:
            self._planner.withdraw(name)
        if isinstance(outcome, Undecided):
            queued.given = False  # it is a device that is waited for
            self._resolving[name] = queued
        queued.deliver(outcome, now_s)
        if went_on and self._queued.get(name) is queued:
            queued.autonomous_runs()
        return True

    def _settle_overtaken(
        self, queued: QueuedBlock, before: QueuedBlock, outcome: Outcome, reply: StepReply, now_s: float
    ) -> bool:
        """Of an autonomous run whose generation has a newer block, which the verifier has not got to yet."""
        if outcome.round != before.round:
            return False
        before.verify_s += reply.engine_s
        if isinstance(outcome, Unfinished):
            return True
        queued.behind(outcome, now_s)
        if not before.went_on(outcome):
            self._forget(outcome.generation)  # there is nothing left that it could join
        before.deliver(outcome, now_s)
        return True


def _poison_error(error: Exception) -> RequestFailedError:
    return RequestFailedError(f"the verifier was lost with this request alone in its steps, again: {error}")
