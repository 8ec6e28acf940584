"""Who is in a verifier's steps and who waits, kept for coordinator and simulator alike.

The verifier steps by itself: who is in a step is in the next one too, until its block is decided and no round follows
by itself. As soon as somebody waits, a policy picks out of all, those within and those without, who is in the steps
from then on. Nothing is planned while nobody waits.

What is planned is the step behind the one under way, so that the verifier finds it when that one ends: who is decided
by the one under way needs no room in it.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from outrider.contracts.cost import CostModel
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy, StopReason


class Contender(Protocol):
    """A block or the stretch behind it."""

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
    held_back: tuple[GenerationId, ...] = ()  # were within, and wait


_NOTHING_CHANGES = StepPlan()


class StepPlanner:
    """One contender of each generation at most. No clock: time is an argument."""

    def __init__(self, policy: SchedulingPolicy, limits: BatchLimits) -> None:
        """Begin with nobody; ``limits`` are those of one step."""
        self._policy, self._limits = policy, limits
        self._waiting: dict[GenerationId, Contender] = {}
        self._within: dict[GenerationId, Contender] = {}
        self._stepped: set[GenerationId] = set()  # of those within, who is in the step under way
        self.reason = StopReason.QUEUE_EMPTY  # why the last plan let in no more

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def within(self) -> int:
        """How many are in the verifier's steps."""
        return len(self._within)

    def has_memory(self, blocks: int | None) -> None:
        """The verifier has so many KV blocks in all."""
        if blocks != self._limits.max_memory_blocks:
            self._limits = replace(self._limits, max_memory_blocks=blocks)

    def arrives(self, generation: GenerationId, contender: Contender) -> None:
        """Somebody waits, in place of what there was of that generation."""
        self.leaves(generation)
        self._waiting[generation] = contender

    def leaves(self, generation: GenerationId) -> None:
        """Its block is decided and no round follows by itself, or it is given up."""
        self._waiting.pop(generation, None)
        self._within.pop(generation, None)
        self._stepped.discard(generation)

    def steps(self) -> None:
        """What a step brought is known, and the next one is under way with all who are within."""
        self._stepped = set(self._within)

    def waits(self, generation: GenerationId) -> bool:
        """Whether it is in no step."""
        return generation in self._waiting

    def plan(self, now_s: float, cost_model: CostModel) -> StepPlan:
        """Let in and hold back, by the policy."""
        if not self._waiting:
            self.reason = StopReason.QUEUE_EMPTY
            return _NOTHING_CHANGES
        waiting, within = self._waiting, self._within
        done = self._done()
        all_of_them = {name: contender for name, contender in (within | waiting).items() if name not in done}
        pending = [contender.pending() for contender in all_of_them.values()]
        plan = self._policy.plan(pending, now_s, self._limits, cost_model)
        self.reason = plan.reason
        chosen = [block.generation for block in plan.batch]
        self._within = done | {name: all_of_them[name] for name in chosen}
        self._waiting = {block.generation: all_of_them[block.generation] for block in plan.waiting}
        held_back = tuple(name for name in within if name not in self._within)
        self._stepped = self._stepped.difference(held_back) if within else set(chosen)
        return StepPlan(tuple(name for name in chosen if name in waiting), held_back)

    def _done(self) -> dict[GenerationId, Contender]:
        """Who is decided by the step under way and needs no room in the next, as far as can be known."""
        done, chunk_left = dict[GenerationId, Contender](), self._limits.prefill_chunk_tokens
        for name, contender in self._within.items():
            if name in self._stepped and not contender.goes_on and contender.prefix_tokens <= chunk_left:
                chunk_left -= contender.prefix_tokens
                done[name] = contender
        return done
