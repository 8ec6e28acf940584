"""Who is in a verifier's steps and who waits, kept for coordinator and simulator alike.

The verifier steps by itself: who is in a step is in the next one too, until its block is decided and no round follows
by itself. As soon as somebody waits, a policy picks out of all, those within and those without, who is in the steps
from then on. Nothing is planned while nobody waits.

What is planned is the step behind the one under way, so that the verifier finds it when that one ends: who is decided
by the one under way needs no room in it.

Who is let in may have its draft cut (``trimming``). Where the rule of acceptance asks for it, by what a row was worth
when the draft was ordered: when a draft comes tells what was drawn, as it is shorter with an end token in it, and so
does the step it comes to. And a verifier with nothing under way may be kept waiting for who is expected (``holding``).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.chunks import pass_costs
from outrider.contracts.cost import CostModel, work_of
from outrider.contracts.requests import GenerationId
from outrider.scheduling.active_promises import ActivePromises
from outrider.scheduling.fair_prefill import FairPrefill
from outrider.scheduling.holding import hold_s
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy, StopReason
from outrider.scheduling.trimming import Chain, idle_s, rows_worth_verifying, trim


class StepCandidate(Protocol):
    """A block or the autonomous run behind it."""

    def pending(self) -> PendingVerification:
        """As it is now: the policy's view of what it needs of the next step."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether another round follows by itself."""
        ...

    @property
    def prefix_tokens(self) -> int:
        """Positions still to compute that go in chunks, of which each step has so many for all together."""
        ...


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What changes in the steps from now on."""

    joining: tuple[GenerationId, ...] = ()  # waited, and are within
    held_back: tuple[GenerationId, ...] = ()  # were within, and wait; or wait to overtake what was within
    cuts: tuple[tuple[GenerationId, int], ...] = ()  # of who joins: draft tokens verified, fewer than there are
    prefill_order: tuple[GenerationId, ...] | None = (
        None  # which cold blocks share a pass's chunk first; None: as before
    )
    hold_s: float = 0.0  # plan again after so long: who waits is kept waiting for who is expected


@dataclass(frozen=True, slots=True)
class StepRules:
    """What a planner may do beside letting in and holding back."""

    trims: bool = True
    holds: bool = True


_ENOUGH_SLACK_S = 1.0  # for a draft to be cut without regard to its own promise
_DEVICE_TOKENS = 1.0  # promised in the time that a round takes before it comes: less, and the verifier decides
_STEPS = 2.0  # that a round takes at the verifier, half of it waiting for the one under way
_NOTHING_CHANGES = StepPlan()
_ALL_RULES = StepRules()


class StepPlanner:
    """One contender of each generation at most. No clock: time is an argument."""

    def __init__(self, policy: SchedulingPolicy, limits: BatchLimits, rules: StepRules = _ALL_RULES) -> None:
        """Begin with nobody; ``limits`` are those of one step."""
        self._policy, self._limits, self._rules = policy, limits, rules
        self._waiting: dict[GenerationId, StepCandidate] = {}
        self._within: dict[GenerationId, StepCandidate] = {}
        self._stepped: set[GenerationId] = set()  # of those within, who is in the step under way
        self._overtaking: set[GenerationId] = set()  # of those waiting, whose autonomous run is still in the steps
        self._expected_at_s: dict[GenerationId, float] = {}
        self._held_since_s: float | None = None
        self._promises = ActivePromises()
        self._prefill = FairPrefill()
        self._arrived: dict[GenerationId, StepCandidate] = {}  # since the last plan
        self.reason = StopReason.QUEUE_EMPTY  # why the last plan let in no more
        self.min_survival = 0.0  # survival above which a draft's row was worth its time in the last step

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_due(self) -> bool:
        """Whether the next step is to be planned: somebody waits, or accounts share the chunks of prefill."""
        return bool(self._waiting) or self._prefill.competing

    @property
    def within(self) -> int:
        """How many are in the verifier's steps."""
        return len(self._within)

    def has_memory(self, blocks: int | None) -> None:
        """The verifier has so many KV blocks in all."""
        if blocks != self._limits.max_memory_blocks:
            self._limits = replace(self._limits, max_memory_blocks=blocks)

    def arrives(
        self,
        generation: GenerationId,
        candidate: StepCandidate,
        account: Account = NO_ACCOUNT,
        *,
        overtakes: bool = False,
    ) -> None:
        """Somebody waits, in place of what there was of that generation, or ``overtakes`` what still steps.

        Its prefill is charged to an ``account``.
        """
        overtakes = overtakes and generation in self._within
        self.withdraw(generation)
        self._prefill.arrives(generation, account)
        self._waiting[generation] = self._arrived[generation] = candidate
        if overtakes:
            self._overtaking.add(generation)

    def expects(self, generation: GenerationId, at_s: float) -> None:
        """Somebody drafts, and should be back then."""
        self._expected_at_s[generation] = at_s

    def withdraw(self, generation: GenerationId) -> None:
        """Its block is decided and no round follows by itself, or it is given up."""
        self._expected_at_s.pop(generation, None)
        self._prefill.withdraw(generation)
        self._waiting.pop(generation, None)
        self._within.pop(generation, None)
        self._stepped.discard(generation)
        self._overtaking.discard(generation)

    def over(self, generation: GenerationId) -> None:
        """Its response is: there is no more to promise."""
        self._arrived.pop(generation, None)
        self._promises.over(generation)

    def steps(self) -> None:
        """What a step brought is known, and the next one is under way with all who are within."""
        self._stepped = set(self._within)

    def waits(self, generation: GenerationId) -> bool:
        """Whether it is in no step."""
        return generation in self._waiting

    @property
    def under_way(self) -> Collection[GenerationId]:
        """Who is in the verifier's step that is being made, or in the next."""
        return self._stepped | self._within.keys()

    def plan(self, now_s: float, cost_model: CostModel, alone: Collection[GenerationId] = ()) -> StepPlan:
        """Let in and hold back, by the policy; as long as any of ``alone`` waits, one of these and nobody beside it."""
        if not self.is_due:
            self.reason, self._held_since_s = StopReason.QUEUE_EMPTY, None
            return _NOTHING_CHANGES
        if alone and (suspects := [name for name in (*self._within, *self._waiting) if name in alone]):
            return self._plan_alone(suspects[0])
        if kept_s := self._hold(now_s, cost_model):
            return StepPlan(hold_s=kept_s)
        arrived = [(candidate.pending(), candidate.prefix_tokens) for candidate in self._arrived.values()]
        self._promises.arrived(arrived, now_s, cost_model)
        self._arrived.clear()
        waiting, within = self._waiting, self._within
        done = self._done()
        all_of_them = {name: candidate for name, candidate in (within | waiting).items() if name not in done}
        pending = [candidate.pending() for candidate in all_of_them.values()]
        promised = self._promises.promised(now_s)
        ending = (candidate.pending() for candidate in done.values())
        in_turn = self._prefill.in_turn(pending, ending, self._limits.prefill_chunk_tokens)
        plan = self._policy.plan(in_turn, now_s, self._limits, cost_model, promised)
        self.reason = plan.reason
        chosen = [block.generation for block in plan.batch]
        self._within = done | {name: all_of_them[name] for name in chosen}
        self._waiting = {block.generation: all_of_them[block.generation] for block in plan.waiting}
        held_back = tuple(name for name in (*within, *self._overtaking) if name not in self._within)
        busy = within or self._overtaking
        self._stepped = self._stepped.difference(held_back) if busy else set(chosen)
        self._overtaking.clear()
        joining = tuple(name for name in chosen if name in waiting)
        cuts: tuple[tuple[GenerationId, int], ...] = ()
        if self._rules.trims and joining:
            cuts = self._trim(chosen, waiting, done, now_s, cost_model, all_kept=promised.least_load <= 1.0)
        return StepPlan(joining, held_back, cuts, self._prefill.prefill_order(done, plan.batch))

    def _plan_alone(self, name: GenerationId) -> StepPlan:
        """Let this one in, and hold all others back: they may be in the step under way, but in none behind it."""
        self.reason, self._held_since_s = StopReason.ALONE, None
        held_back = tuple(dict.fromkeys(other for other in (*self._within, *self._overtaking) if other != name))
        if not (self._within or self._overtaking):
            self._stepped = {name}
        joining = () if name in self._within else (name,)
        candidate = self._within.get(name) or self._waiting.pop(name)
        self._waiting = {other: self._within.pop(other) for other in held_back if other in self._within} | self._waiting
        self._within = {name: candidate}
        self._overtaking.clear()
        return StepPlan(joining, held_back)

    def _done(self) -> dict[GenerationId, StepCandidate]:
        """Who is decided by the step under way and needs no room in the next, as far as can be known."""
        done, chunk_left = dict[GenerationId, StepCandidate](), self._limits.prefill_chunk_tokens
        for name, candidate in self._within.items():
            if name in self._stepped and not candidate.goes_on and candidate.prefix_tokens <= chunk_left:
                chunk_left -= candidate.prefix_tokens
                done[name] = candidate
        return done

    def _hold(self, now_s: float, cost_model: CostModel) -> float:
        """How long those who wait are kept waiting for others; not at all where the verifier steps anyway."""
        if self._within or self._overtaking or not self._rules.holds or len(self._waiting) >= self._limits.max_blocks:
            self._held_since_s = None
            return 0.0
        held_s = 0.0 if self._held_since_s is None else now_s - self._held_since_s
        pending = (candidate.pending() for candidate in self._waiting.values())
        waiting = [(block.cost, block.before_s) for block in pending]
        kept_s = hold_s(waiting, self._coming_s(now_s), held_s, cost_model)
        self._held_since_s = now_s - held_s if kept_s else None
        return kept_s

    def _coming_s(self, now_s: float) -> list[float]:
        """When drafts are expected, from now on; who is late may not come at all."""
        return sorted(at_s - now_s for at_s in self._expected_at_s.values() if at_s > now_s)

    def _trim(
        self,
        chosen: Collection[GenerationId],
        waited: Collection[GenerationId],
        done: dict[GenerationId, StepCandidate],
        now_s: float,
        cost_model: CostModel,
        *,
        all_kept: bool,
    ) -> tuple[tuple[GenerationId, int], ...]:
        """How much is verified of the drafts that join, of all that is in the next step.

        ``all_kept``: there is time for all promises.
        """
        chains, prefixes, others, other_tokens = dict[GenerationId, PendingVerification](), [], [], 0.0
        members = list[tuple[float, float]]()
        for name in chosen:
            candidate = self._within[name]
            block, prefix_tokens = candidate.pending(), candidate.prefix_tokens
            own_rows = block.cost.new_tokens - prefix_tokens
            if prefix_tokens:  # brings nothing yet
                prefixes.append((block.cost, own_rows))
                continue
            members.append((block.expected_tokens, _before_s(block, now_s) if name in waited else block.before_s))
            if block.survivals and name in waited:
                chains[name] = block
            else:
                others.append((block.cost, own_rows))
                other_tokens += block.expected_tokens
        self.min_survival = 0.0
        if not chains:
            return ()
        computed = pass_costs(others, self._limits.prefill_chunk_tokens)
        cold = pass_costs(prefixes, self._limits.prefill_chunk_tokens)
        step_s = cost_model.predict_s([*computed, *cold, *(block.cost for block in chains.values())])
        back_s = [candidate.pending().before_s for candidate in done.values()]
        coming_s = sorted((*(0.0 for _ in self._waiting), *back_s, *self._coming_s(now_s)))
        wasted_s = idle_s(step_s, members, coming_s)
        drafted = [Chain(block.cost, block.survivals) for block in chains.values()]
        found = trim(drafted, work_of(computed), other_tokens, wasted_s, cost_model)
        self.min_survival = found.min_survival
        cuts = []
        for (name, block), tokens in zip(chains.items(), found.kept, strict=True):
            if block.min_survival is not None:
                kept = rows_worth_verifying(block.survivals, block.min_survival)
            else:
                kept = max(tokens, _needed(block, now_s, step_s)) if all_kept else tokens
            if kept < len(block.survivals):
                cuts.append((name, kept))
        return tuple(cuts)


def _needed(block: PendingVerification, now_s: float, step_s: float) -> int:
    """Draft tokens without which its rounds would be slower than promised, where it is the device that takes its time.

    Elsewhere rounds are as long as verifiers make them, and with less to verify for all they are shorter.
    """
    if block.tokens_per_s * block.before_s < _DEVICE_TOKENS or block.deadline_at_s == inf:
        return 0
    slack_s = block.deadline_at_s - block.expected_tokens / block.tokens_per_s - now_s
    if slack_s >= _ENOUGH_SLACK_S:
        return 0
    needed_tokens = block.tokens_per_s * (block.before_s + _STEPS * step_s)
    tokens, kept = 1.0, 0
    for survival in block.survivals:
        if tokens >= needed_tokens:
            break
        tokens, kept = tokens + survival, kept + 1
    return kept


def _before_s(block: PendingVerification, now_s: float) -> float:
    """What its round has taken up to now."""
    return block.before_s + max(0.0, now_s - block.arrived_at_s)
