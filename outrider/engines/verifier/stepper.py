"""Step a verifier engine, one forward pass a step: new blocks join, autonomous runs and prefills go on by themselves.

A block whose grammar or masks are made in another thread is held back until they are there; others do not wait for it.
Generations in an autonomous run come first in a pass, so that they get memory before newly begun ones. A new one waits
for memory then, instead of evicting their KV.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from outrider.contracts.autonomous_runs import RunLog, following
from outrider.contracts.cost import VerifyCost
from outrider.contracts.requests import MAX_LOOKUP_TOKENS, GenerationId, SamplingParams
from outrider.contracts.verifying import (
    AutonomousRun,
    Block,
    Failed,
    OpenGeneration,
    Outcome,
    OwnDraft,
    PromptLookupGrant,
    Resolution,
    Stale,
    Unfinished,
    Verified,
    VerifierEngine,
)
from outrider.engines.fault_bisection import FaultKind, reason_of
from outrider.engines.verifier.contained import ContainedPasses
from outrider.engines.verifier.own_drafts import OwnDrafts
from outrider.events import event
from outrider.lookup.text import LookupHistory

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A block that is not decided yet, or the autonomous run after it; stepped while ``next`` is within its grant."""

    next: Block
    until_round: int
    lookup: PromptLookupGrant | None
    run_log: RunLog | None = None  # of an autonomous run
    looked: bool = True  # False: prompt lookup for ``next`` is still to be made
    own_draft: OwnDraft | None = None

    @property
    def steps(self) -> bool:
        return self.next.round <= self.until_round


class Stepper:
    """Undecided blocks and autonomous runs of one engine. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        engine: VerifierEngine,
        experience: LookupHistory | None = None,
        on_opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over an engine without open generations, which nobody else may call ``verify`` of.

        ``on_opened`` is called when a generation's grammar or masks are ready, possibly in another thread, as an idle
        stepper may have work then.
        """
        self._on_opened = on_opened
        self._openings: dict[GenerationId, Future[Any]] = {}  # unfinished when last checked
        self._trace_ids: dict[GenerationId, str] = {}  # of sampled generations
        self._engine, self._passes = engine, ContainedPasses(engine, self._trace_ids)
        self._own_drafts = OwnDrafts(experience or LookupHistory())
        self._params: dict[GenerationId, SamplingParams] = {}
        self._under_way: dict[GenerationId, _UnderWay] = {}
        self._resolutions: list[Resolution] = []
        self._settled: list[Outcome] = []
        self._prefill_ranks: dict[GenerationId, int] = {}

    @property
    def idle(self) -> bool:
        going = any(map(self._may_step, self._under_way.values()))
        return not (self._resolutions or self._settled or going)

    def open(self, request: OpenGeneration) -> None:
        self._under_way.pop(request.generation, None)
        self._cancel_opening(request.generation)
        opening = self._engine.open(request)
        self._params[request.generation] = request.params
        if request.trace_id is not None:
            self._trace_ids[request.generation] = request.trace_id
        self._own_drafts.opened(request)
        if opening is not None:
            self._wait_for(request.generation, opening)

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Forget a generation, as ``VerifierEngine.close``; ``keep_cache`` keeps its response for prompt lookup."""
        self._under_way.pop(generation, None)
        self._cancel_opening(generation)
        self._trace_ids.pop(generation, None)
        held = self._params.pop(generation, None) is not None
        self._own_drafts.closed(generation, self._engine.committed(generation) if held and keep_cache else None)
        self._engine.close(generation, keep_cache=keep_cache)

    def close_all(self) -> None:
        """Forget all generations, and what is under way; their full KV blocks stay in the prefix cache."""
        self.drop_all()
        for generation in self._params:
            self._cancel_opening(generation)
            self._own_drafts.closed(generation)  # not kept for lookup: the response may be incomplete
            self._engine.close(generation, keep_cache=True)
        self._params = {}
        self._trace_ids.clear()

    def give(self, blocks: Iterable[Block], resolutions: Iterable[Resolution] = ()) -> None:
        """Add blocks and resolutions to the next step. A block ends its generation's autonomous run."""
        for block in blocks:
            # A block that arrives during an autonomous run may assume an earlier prefix: it is rebased, or is stale.
            before = self._under_way.pop(block.generation, None)
            rebased = block if before is None or before.run_log is None else before.run_log.rebased(block)
            if rebased is None:
                self._settled.append(Stale(block.generation, block.round))
            else:
                autonomous_run = block.autonomous_run or AutonomousRun(block.round)
                self._under_way[block.generation] = _UnderWay(
                    rebased, autonomous_run.until_round, autonomous_run.lookup
                )
        self._resolutions += resolutions

    def grant_rounds(self, generation: GenerationId, until_round: int) -> None:
        """Set the last round of a generation that is under way, in an autonomous run or with an undecided block."""
        under_way = self._under_way.get(generation)
        if under_way is not None:
            under_way.until_round = until_round

    def prefill_in(self, order: Sequence[GenerationId] | None) -> None:
        """Set the order in which prompts share a pass's prefill chunk; others follow. None keeps the present order."""
        if order is not None:
            self._prefill_ranks = {generation: rank for rank, generation in enumerate(order)}

    def due(self, generation: GenerationId, at_s: float) -> None:
        self._engine.due(generation, at_s)

    def look_up(self, generation: GenerationId, grant: PromptLookupGrant | None) -> None:
        """Set the grant for own drafts of a generation that is under way, from its next round on."""
        under_way = self._under_way.get(generation)
        if under_way is not None:
            under_way.lookup = grant

    def drop_all(self) -> None:
        """Forget blocks, runs and resolutions; the engine keeps its generations."""
        self._under_way, self._resolutions, self._settled, self._prefill_ranks = {}, [], [], {}

    def step(self) -> list[Outcome]:
        """Run one pass over all that may step; return outcomes of blocks and rounds, at most one per generation."""
        stepped = [each for each in self._under_way.values() if self._may_step(each)]
        self._draft(stepped)
        stepped = self._prepared(stepped)
        stepped.sort(key=self._rank)
        resolutions, settled = self._resolutions, self._settled
        self._resolutions, self._settled = [], []
        outcomes = self._passes.verify([each.next for each in stepped], resolutions)
        outcomes[: len(stepped)] = map(self._followed, stepped, outcomes)
        return [*settled, *outcomes]

    def _may_step(self, each: _UnderWay) -> bool:
        """Whether its next round is granted and its grammar and masks are ready."""
        if not each.steps:
            return False
        name = each.next.generation
        opening = self._openings.get(name)
        if opening is not None and opening.done():
            del self._openings[name]
            return True
        return opening is None

    def _prepared(self, stepped: Sequence[_UnderWay]) -> list[_UnderWay]:
        """Return those whose masks are ready; masks of the others are made in another thread meanwhile."""
        waiting = self._engine.prepare([each.next for each in stepped], self._resolutions)
        for name, opening in waiting.items():
            self._wait_for(name, opening)
        return [each for each in stepped if each.next.generation not in waiting]

    def _wait_for(self, generation: GenerationId, opening: Future[Any]) -> None:
        self._openings[generation] = opening
        opening.add_done_callback(lambda _: self._on_opened())

    def _cancel_opening(self, generation: GenerationId) -> None:
        if (opening := self._openings.pop(generation, None)) is not None:
            opening.cancel()

    def _rank(self, each: _UnderWay) -> tuple[bool, int]:
        """Sort key: autonomous runs first, then new blocks in the order of ``prefill_in``."""
        ranks = self._prefill_ranks
        return each.run_log is None, ranks.get(each.next.generation, len(ranks)) if ranks else 0

    @property
    def in_pass(self) -> tuple[GenerationId, ...]:
        return self._passes.under_way

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self._passes.last_pass()

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        return self._passes.evicted()

    def taken_faults(self) -> tuple[FaultKind, ...]:
        return self._passes.taken_faults()

    def _followed(self, under_way: _UnderWay, outcome: Outcome) -> Outcome:
        """Call ``_went_on``; an exception fails this generation alone."""
        try:
            return self._went_on(under_way, outcome)
        except Exception as error:
            done = under_way.next
            log.exception("stretch_failed")
            self._under_way.pop(done.generation, None)
            return Failed(done.generation, done.round, reason_of(error))

    def _went_on(self, under_way: _UnderWay, outcome: Outcome) -> Outcome:
        """Start the next round of an autonomous run, if one follows; return the outcome, with its own draft."""
        if isinstance(outcome, Unfinished):
            return outcome
        done, lookup = under_way.next, under_way.lookup
        if not isinstance(outcome, Verified):
            del self._under_way[done.generation]
            return outcome
        if under_way.own_draft is not None:
            outcome = replace(outcome, own_draft=under_way.own_draft)
        behind = following(done, outcome, self._params[done.generation])
        if behind is None or (lookup is not None and behind.position >= lookup.until_position):
            del self._under_way[done.generation]
            return outcome
        under_way.run_log = under_way.run_log or RunLog.begin(done)
        under_way.run_log.went_on(done, outcome)
        under_way.next, under_way.looked, under_way.own_draft = behind, False, None
        return outcome

    def _draft(self, stepped: Sequence[_UnderWay]) -> None:
        """Draft by prompt lookup, or what a grammar forces, for rounds of autonomous runs.

        Where KV memory is short, a draft is cut to the free slots of its generation's last block: no KV is evicted for
        a speculative token.
        """
        lookups = [each for each in stepped if not each.looked and each.lookup is not None]
        if not lookups:
            return
        usage = self._engine.usage()
        # Memory is short: fewer available blocks than generations in the step.
        short = usage.total_blocks - usage.used_blocks < len(stepped)
        for each in lookups:
            name, each.looked = each.next.generation, True
            assert each.lookup is not None
            room = -each.next.position % usage.block_tokens if short else MAX_LOOKUP_TOKENS
            try:
                forced = partial(self._engine.forced, name)
                committed = self._engine.committed(name)
                each.own_draft = self._own_drafts.draft(name, committed, each.lookup, room, forced)
            except Exception as error:  # noqa: BLE001 (the round goes on without a draft)
                named = {"generation": name, "trace_id": self._trace_ids.get(name)}
                event(log, "lookup_failed", logging.ERROR, **named, reason=f"{error!r:.200}")
                each.lookup = None
            if each.own_draft is not None:
                each.next = replace(each.next, draft=each.own_draft.token_ids)
