"""Steps a verifier engine: new blocks join the next step; autonomous runs and begun prefills go on by themselves.

One step is one forward pass. A block for which another thread compiles a grammar or makes masks waits for that, and
holds up nobody. Generations that decode alone come first in it, so that one which is begun under
shortage of memory waits for them rather than throws them out.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from outrider.contracts.autonomous_runs import RunLog, following
from outrider.contracts.cost import VerifyCost
from outrider.contracts.requests import GenerationId, SamplingParams
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
from outrider.engines.fault_bisection import FaultKind
from outrider.engines.verifier.contained import ContainedPasses
from outrider.engines.verifier.own_drafts import OwnDrafts
from outrider.events import event
from outrider.lookup.text import LookupHistory

log = logging.getLogger(__name__)


_MOST_REASON_CHARS = 300


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A block that is not decided yet, or the autonomous run behind it; stepped up to its last granted round."""

    next: Block
    until_round: int
    lookup: PromptLookupGrant | None
    run_log: RunLog | None = None  # of an autonomous run
    looked: bool = True  # for what ``next`` may have of the verifier itself
    own_draft: OwnDraft | None = None

    @property
    def steps(self) -> bool:
        return self.next.round <= self.until_round


class Stepper:
    """All that is under way in one engine. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        engine: VerifierEngine,
        experience: LookupHistory | None = None,
        on_opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over an engine; nobody else verifies with it.

        Args:
            engine: no generation is open.
            experience: where its own drafts begin.
            on_opened: called, maybe in another thread, when a generation that was being opened is: a stepper that was
                idle may have something to do.
        """
        self._on_opened = on_opened
        self._openings: dict[GenerationId, Future[Any]] = {}  # that were not done when they were looked at last
        self._trace_ids: dict[GenerationId, str] = {}  # of those that are sampled
        self._engine, self._passes = engine, ContainedPasses(engine, self._trace_ids)
        self._own_drafts = OwnDrafts(experience or LookupHistory())
        self._params: dict[GenerationId, SamplingParams] = {}
        self._under_way: dict[GenerationId, _UnderWay] = {}
        self._resolutions: list[Resolution] = []
        self._settled: list[Outcome] = []
        self._prefill_ranks: dict[GenerationId, int] = {}

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        going = any(map(self._may_step, self._under_way.values()))
        return not (self._resolutions or self._settled or going)

    def open(self, request: OpenGeneration) -> None:
        """Hold a generation; see ``VerifierEngine.open``."""
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
        """Forget a generation; see ``VerifierEngine.close``. With its cache, its response is kept to look through."""
        self._under_way.pop(generation, None)
        self._cancel_opening(generation)
        self._trace_ids.pop(generation, None)
        held = self._params.pop(generation, None) is not None
        self._own_drafts.closed(generation, self._engine.committed(generation) if held and keep_cache else None)
        self._engine.close(generation, keep_cache=keep_cache)

    def close_all(self) -> None:
        """Forget all generations, and what is under way; full blocks stay in the prefix cache."""
        self.drop_all()
        for generation in self._params:
            self._cancel_opening(generation)
            self._own_drafts.closed(generation)  # whether its response is complete is not known
            self._engine.close(generation, keep_cache=True)
        self._params = {}
        self._trace_ids.clear()

    def give(self, blocks: Iterable[Block], resolutions: Iterable[Resolution] = ()) -> None:
        """Have blocks and resolutions join the next step. A generation's block ends its autonomous run."""
        for block in blocks:
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
        """Set the last round a generation may reach, if it is under way: an autonomous run, or an undecided block."""
        under_way = self._under_way.get(generation)
        if under_way is not None:
            under_way.until_round = until_round

    def prefill_in(self, order: Sequence[GenerationId] | None) -> None:
        """Who shares the chunk of a pass first from now on, others behind them as they came; None: as before."""
        if order is not None:
            self._prefill_ranks = {generation: rank for rank, generation in enumerate(order)}

    def due(self, generation: GenerationId, at_s: float) -> None:
        """When its response falls behind; see ``VerifierEngine.due``."""
        self._engine.due(generation, at_s)

    def look_up(self, generation: GenerationId, grant_rounds: PromptLookupGrant | None) -> None:
        """What a generation that is under way may draft by itself from its next round on."""
        under_way = self._under_way.get(generation)
        if under_way is not None:
            under_way.lookup = grant_rounds

    def drop_all(self) -> None:
        """Forget what is under way; the engine keeps its generations."""
        self._under_way, self._resolutions, self._settled, self._prefill_ranks = {}, [], [], {}

    def step(self) -> list[Outcome]:
        """One pass over all that is under way: what became of blocks and rounds, one of each generation at most."""
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
        """Whether it may make another round, and is open."""
        if not each.steps:
            return False
        name = each.next.generation
        opening = self._openings.get(name)
        if opening is not None and opening.done():
            del self._openings[name]
            return True
        return opening is None

    def _prepared(self, stepped: Sequence[_UnderWay]) -> list[_UnderWay]:
        """Those whose masks are there; the others' are made in another thread meanwhile."""
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
        """Of those begun a prompt's chunk goes by the order that was told."""
        ranks = self._prefill_ranks
        return each.run_log is None, ranks.get(each.next.generation, len(ranks)) if ranks else 0

    @property
    def in_pass(self) -> tuple[GenerationId, ...]:
        """Generations of the pass that is being made, or was made last."""
        return self._passes.under_way

    def last_pass(self) -> tuple[VerifyCost, ...]:
        """What the last step computed."""
        return self._passes.last_pass()

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        """Who lost KV in the last step; see ``VerifierEngine.evicted``."""
        return self._passes.evicted()

    def taken_faults(self) -> tuple[FaultKind, ...]:
        """What went wrong with passes since this was asked last."""
        return self._passes.taken_faults()

    def _followed(self, under_way: _UnderWay, outcome: Outcome) -> Outcome:
        """As ``_went_on``; what goes wrong there is of this generation alone."""
        try:
            return self._went_on(under_way, outcome)
        except Exception as error:
            done = under_way.next
            log.exception("stretch_failed")
            self._under_way.pop(done.generation, None)
            return Failed(done.generation, done.round, f"{type(error).__name__}: {error}"[:_MOST_REASON_CHARS])

    def _went_on(self, under_way: _UnderWay, outcome: Outcome) -> Outcome:
        """Go on behind a round that was stepped, as far as that is to be; what is told of it."""
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
        """Look up drafts for autonomous rounds: where memory is short, what fits blocks that they need anyway.

        Others' KV goes before a guess.
        """
        lookups = [each for each in stepped if not each.looked and each.lookup is not None]
        if not lookups:
            return
        usage = self._engine.usage()
        short = usage.total_blocks - usage.used_blocks < len(stepped)
        for each in lookups:
            name, each.looked = each.next.generation, True
            assert each.lookup is not None
            lookup = each.lookup
            if short:
                lookup = replace(lookup, tokens=min(lookup.tokens, -each.next.position % usage.block_tokens))
            try:
                each.own_draft = self._own_drafts.draft(name, self._engine.committed(name), lookup)
            except Exception as error:  # noqa: BLE001 (a guess less)
                named = {"generation": name, "trace_id": self._trace_ids.get(name)}
                event(log, "lookup_failed", logging.ERROR, **named, reason=f"{error!r:.200}")
                each.lookup = None
            if each.own_draft is not None:
                each.next = replace(each.next, draft=each.own_draft.token_ids)
