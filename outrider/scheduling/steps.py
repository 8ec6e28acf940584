"""Keep track of which blocks are in a verifier's steps and which wait. Used by coordinator and simulator alike.

The verifier does not wait for plans: a block stays in its steps until it is decided and no autonomous run follows.
While blocks wait, the policy chooses anew, among all, who is in the steps. While none waits, a step is planned only
where accounts compete for prefill.

A plan is for the next step and must be ready when the present one ends. Blocks that the present step will decide take
no space in the next one.

Drafts of joining blocks may be cut (``trimming``). Under ratio rules the cut follows from the limit ``min_survival`` at
the time the draft was ordered. A later limit would depend on the drafted tokens: a draft with an end token is shorter
and arrives earlier, in another step. A verifier without a step under way may be held for expected blocks (``holding``).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.cost import CostModel
from outrider.contracts.requests import GenerationId
from outrider.scheduling.active_promises import ActivePromises
from outrider.scheduling.fair_prefill import FairPrefill
from outrider.scheduling.holding import hold_s
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    PendingVerification,
    Promised,
    QueueOnly,
    SchedulingPolicy,
    StopReason,
)
from outrider.scheduling.trimming import StepMember, cut_drafts


class StepCandidate(Protocol):
    """A block, or the autonomous run after it."""

    def pending(self) -> PendingVerification:
        """Return the policy's view of what it needs of the next step, as of now."""

    @property
    def goes_on(self) -> bool:
        """Whether an autonomous run follows once its block is decided."""

    @property
    def prefill_tokens(self) -> int:
        """Positions still to compute in chunks; each step has one chunk for all blocks."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Changes to the verifier's steps from now on."""

    joining: tuple[GenerationId, ...] = ()  # waited, and are in the steps now
    # were in the steps and wait now, or wait to replace an autonomous run in the steps
    held_back: tuple[GenerationId, ...] = ()
    cuts: tuple[tuple[GenerationId, int], ...] = ()  # of joining blocks whose draft is cut: draft tokens to verify
    # cold blocks in the order in which they share a pass's chunk; None keeps the last order
    prefill_order: tuple[GenerationId, ...] | None = None
    hold_s: float = 0.0  # plan again after this time; waiting blocks are held for expected ones


@dataclass(frozen=True, slots=True)
class StepRules:
    """Switches for cutting drafts and for holding an idle verifier."""

    trims: bool = True
    holds: bool = True


_NOTHING_CHANGES = StepPlan()
_ALL_RULES = StepRules()


class StepPlanner:
    """Plan the steps of one verifier; at most one candidate of each generation. No clock: time is an argument."""

    def __init__(self, policy: SchedulingPolicy, limits: BatchLimits, rules: StepRules = _ALL_RULES) -> None:
        self._policy, self._limits, self._rules = policy, limits, rules
        self._waiting: dict[GenerationId, StepCandidate] = {}
        self._running: dict[GenerationId, StepCandidate] = {}
        self._stepped: set[GenerationId] = set()  # of those running: in the step under way
        self._overtaking: set[GenerationId] = set()  # of those waiting: their autonomous run is still in the steps
        self._expected_at_s: dict[GenerationId, float] = {}
        self._held_since_s: float | None = None
        self._promises = ActivePromises()
        self._counts_promises = rules.trims or not isinstance(policy, QueueOnly)
        self._prefill = FairPrefill()
        self._arrived: dict[GenerationId, StepCandidate] = {}  # since the last plan
        self.reason = StopReason.QUEUE_EMPTY  # why the last plan took no more blocks
        self.min_survival = 0.0  # survival above which a draft's row paid for its time in the last step

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_due(self) -> bool:
        """Whether the next step is to be planned: blocks wait, or accounts compete for the chunks of prefill."""
        return bool(self._waiting) or self._prefill.competing

    @property
    def kv_is_short(self) -> bool:
        """Whether the responses with a promise need more KV blocks than there are, and some were evicted."""
        most = self._limits.max_memory_blocks
        return most is not None and self._promises.need_more_than(most)

    @property
    def running(self) -> int:
        return len(self._running)

    def set_memory_blocks(self, blocks: int | None) -> None:
        if blocks != self._limits.max_memory_blocks:
            self._limits = replace(self._limits, max_memory_blocks=blocks)

    def add(
        self,
        generation: GenerationId,
        candidate: StepCandidate,
        account: Account = NO_ACCOUNT,
        *,
        overtakes: bool = False,
    ) -> None:
        """Add a waiting candidate in place of the generation's earlier one; its prefill is charged to ``account``.

        With ``overtakes`` the earlier one is an autonomous run that is still in the steps.
        """
        overtakes = overtakes and generation in self._running
        self.withdraw(generation)
        self._prefill.add(generation, account)
        self._waiting[generation] = self._arrived[generation] = candidate
        if overtakes:
            self._overtaking.add(generation)

    def expect(self, generation: GenerationId, at_s: float) -> None:
        """Note that a device drafts and when its block should arrive."""
        self._expected_at_s[generation] = at_s

    def withdraw(self, generation: GenerationId) -> None:
        """Remove a generation's candidate: its block is decided and no autonomous run follows, or it is given up."""
        self._expected_at_s.pop(generation, None)
        self._prefill.withdraw(generation)
        self._waiting.pop(generation, None)
        self._running.pop(generation, None)
        self._stepped.discard(generation)
        self._overtaking.discard(generation)

    def over(self, generation: GenerationId) -> None:
        self._arrived.pop(generation, None)
        self._promises.over(generation)

    def note_evicted(self, generation: GenerationId) -> None:
        self._promises.evicted(generation)

    def note_step(self) -> None:
        """Note that a step has ended and the next one is under way with all running candidates."""
        self._stepped = set(self._running)

    def waits(self, generation: GenerationId) -> bool:
        return generation in self._waiting

    @property
    def under_way(self) -> Collection[GenerationId]:
        """Generations in the verifier's present step or in the next one."""
        return self._stepped | self._running.keys()

    def plan(self, now_s: float, cost_model: CostModel, suspects: Collection[GenerationId] = ()) -> StepPlan:
        """Choose by the policy who is in the steps; while one of ``suspects`` is there, isolate it."""
        if not self.is_due:
            self.reason, self._held_since_s = StopReason.QUEUE_EMPTY, None
            return _NOTHING_CHANGES
        if suspects and (present := [name for name in (*self._running, *self._waiting) if name in suspects]):
            return self._plan_isolated(present[0])
        if kept_s := self._hold(now_s, cost_model):
            return StepPlan(hold_s=kept_s)
        promised = self._promised(now_s, cost_model)
        waiting, running = self._waiting, self._running
        done = self._done()
        all_of_them = {name: candidate for name, candidate in (running | waiting).items() if name not in done}
        pending = [candidate.pending() for candidate in all_of_them.values()]
        ending = (candidate.pending() for candidate in done.values())
        in_turn = self._prefill.in_turn(pending, ending, self._limits.prefill_chunk_tokens)
        plan = self._policy.plan(in_turn, now_s, self._limits, cost_model, promised)
        self.reason = plan.reason
        chosen = [block.generation for block in plan.batch]
        self._running = done | {name: all_of_them[name] for name in chosen}
        self._waiting = {block.generation: all_of_them[block.generation] for block in plan.waiting}
        held_back = tuple(name for name in (*running, *self._overtaking) if name not in self._running)
        busy = running or self._overtaking
        self._stepped = self._stepped.difference(held_back) if busy else set(chosen)
        self._overtaking.clear()
        joining = tuple(name for name in chosen if name in waiting)
        cuts: tuple[tuple[GenerationId, int], ...] = ()
        if self._rules.trims and joining:
            cuts = self._cut(waiting, done, now_s, cost_model, all_kept=promised.least_load <= 1.0)
        return StepPlan(joining, held_back, cuts, self._prefill.prefill_order(done, plan.batch))

    def _promised(self, now_s: float, cost_model: CostModel) -> Promised:
        """Count the blocks that arrived since the last plan; return what is promised now, if anybody asks."""
        promised = NOTHING_PROMISED
        if self._counts_promises:
            arrived = [(candidate.pending(), candidate.prefill_tokens) for candidate in self._arrived.values()]
            self._promises.arrived(arrived, now_s, cost_model)
            promised = replace(self._promises.promised(now_s), kv_is_short=self.kv_is_short)
        self._arrived.clear()
        return promised

    def _plan_isolated(self, name: GenerationId) -> StepPlan:
        """Let one generation in and hold back all others. They may be in the present step, but in none after it."""
        self.reason, self._held_since_s = StopReason.ALONE, None
        held_back = tuple(dict.fromkeys(other for other in (*self._running, *self._overtaking) if other != name))
        if not (self._running or self._overtaking):
            self._stepped = {name}
        joining = () if name in self._running else (name,)
        candidate = self._running.get(name) or self._waiting.pop(name)
        returned = {other: self._running[other] for other in held_back if other in self._running}
        self._waiting = returned | self._waiting
        self._running = {name: candidate}
        self._overtaking.clear()
        return StepPlan(joining, held_back)

    def _done(self) -> dict[GenerationId, StepCandidate]:
        """Return candidates that the step under way should decide, so that they take no space in the next one."""
        done, chunk_left = dict[GenerationId, StepCandidate](), self._limits.prefill_chunk_tokens
        for name, candidate in self._running.items():
            if name in self._stepped and not candidate.goes_on and candidate.prefill_tokens <= chunk_left:
                chunk_left -= candidate.prefill_tokens
                done[name] = candidate
        return done

    def _hold(self, now_s: float, cost_model: CostModel) -> float:
        if self._running or self._overtaking or not self._rules.holds or len(self._waiting) >= self._limits.max_blocks:
            self._held_since_s = None
            return 0.0
        held_s = 0.0 if self._held_since_s is None else now_s - self._held_since_s
        pending = (candidate.pending() for candidate in self._waiting.values())
        waiting = [(block.cost, block.elapsed_s) for block in pending]
        kept_s = hold_s(waiting, self._coming_s(now_s), held_s, cost_model)
        self._held_since_s = now_s - held_s if kept_s else None
        return kept_s

    def _coming_s(self, now_s: float) -> list[float]:
        """Return expected arrivals in seconds from now, rising. Late ones are left out: they may never arrive."""
        return sorted(at_s - now_s for at_s in self._expected_at_s.values() if at_s > now_s)

    def _cut(
        self,
        waited: Collection[GenerationId],
        done: dict[GenerationId, StepCandidate],
        now_s: float,
        cost_model: CostModel,
        *,
        all_kept: bool,
    ) -> tuple[tuple[GenerationId, int], ...]:
        members = [
            StepMember(candidate.pending(), candidate.prefill_tokens, joins=name in waited)
            for name, candidate in self._running.items()
            if name not in done
        ]
        back_s = [candidate.pending().elapsed_s for candidate in done.values()]
        coming_s = sorted((*(0.0 for _ in self._waiting), *back_s, *self._coming_s(now_s)))
        chunk_tokens = self._limits.prefill_chunk_tokens
        found = cut_drafts(members, coming_s, now_s, cost_model, chunk_tokens, all_kept=all_kept)
        self.min_survival = found.min_survival
        return found.tokens
