"""Verifier engine over any paged model: generations, KV blocks, planning of passes, decisions by their logits.

The model (``outrider.engines.forward_model``) only computes passes. All rules of correctness are here, for every model.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import (
    RATIO_RULES,
    Block,
    BlockRefused,
    Failed,
    KvUsage,
    OpenGeneration,
    Outcome,
    Resolution,
    Unfinished,
    Unknown,
    Verified,
)
from outrider.engines.forward_model import BranchModel, MaskedModel, SwappingModel
from outrider.engines.kv.store import KvStore
from outrider.engines.limits import MemoryBesideKv
from outrider.engines.verifier.block_validator import BlockValidator, CheckedBlock
from outrider.engines.verifier.decision import RowDecision, decide
from outrider.engines.verifier.generation import HeldGeneration
from outrider.engines.verifier.kept_rows import KeptRows
from outrider.engines.verifier.mask_turn import MaskTurn
from outrider.engines.verifier.pass_plan import PassPlan
from outrider.engines.verifier.target_runner import TargetRunner
from outrider.engines.verifier.two_steps import PendingSemanticRound, decide_open
from outrider.engines.verifier.work import Work
from outrider.grammar.compiling import Grammars
from outrider.grammar.state import GrammarState
from outrider.verification.decision import BlockDecision
from outrider.verification.semantic import MismatchJudge


class PagedVerifier:
    """``VerifierEngine`` for chains and trees under every rule, deferred corrections included.

    After a deferred correction the engine keeps the logits row that the device draws from, and the KV of the last
    committed token. Rows are evicted least recently used first, except the last one. An evicted row is computed again
    from the last committed token.
    """

    def __init__(
        self,
        model: MaskedModel | BranchModel,
        *,
        vocab_size: int,
        max_context_tokens: int,
        prefill_chunk_tokens: int,
        memory: MemoryBesideKv,
        judges: Mapping[str, MismatchJudge] | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        """Take over a model and all its KV blocks.

        Args:
            model: the target.
            vocab_size: number of token ids; logits beyond it are padding and never sampled.
            max_context_tokens: positions of the model's context.
            prefill_chunk_tokens: prefix positions computed per pass, over all cold blocks.
            memory: of rows kept for deferred corrections, and of the host cache of a ``SwappingModel``.
            judges: by the name that blocks give; without one the semantic rule is not supported.
            grammars: of the target's tokenizer; without them no request may have a grammar.
        """
        self._judges, self._grammars = judges or {}, grammars
        self._vocab_size, self._prefill_chunk_tokens = vocab_size, prefill_chunk_tokens
        host_blocks = memory.host_blocks if isinstance(model, SwappingModel) else 0
        self._store = KvStore(model.total_blocks, model.block_tokens, host_blocks)
        self._runner = TargetRunner(model, self._store, vocab_size)
        self._rows = KeptRows(memory.kept_rows_bytes)
        self._generations: dict[GenerationId, HeldGeneration] = {}
        self.max_context_tokens = min(max_context_tokens, self._store.capacity_tokens)
        branching, pool = not isinstance(model, MaskedModel), (model.total_blocks, model.block_tokens)
        self._validator = BlockValidator(vocab_size, self.max_context_tokens, *pool, branching, self._judges)

    def open(self, request: OpenGeneration) -> Future[GrammarState] | None:
        self._validator.check_opening(request)
        grammar = request.params.grammar
        if grammar is not None and self._grammars is None:
            raise ParameterError("grammar", "an engine that knows its tokenizer", grammar.text[:64])
        opening = None
        if grammar is not None and self._grammars is not None:
            opening = self._grammars.open(grammar, request.output_ids, request.account)
        self._rows.drop(request.generation)
        kv = self._store.open(request.generation, request.cache_salt)
        self._generations[request.generation] = HeldGeneration.opened(request, kv, self._vocab_size, opening)
        return opening

    def prepare(
        self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()
    ) -> dict[GenerationId, Future[Any]]:
        if self._grammars is None:
            return {}
        turn, resolved = MaskTurn(self._grammars), {resolution.generation for resolution in resolutions}
        for block in blocks:
            generation = self._generations.get(block.generation)
            if generation is None or generation.opening is None:
                continue
            with suppress(Exception):  # the pass raises the same, and reports it for this block alone
                if block.generation in resolved:
                    turn.behind_resolution(generation, block)
                elif self._settled(block) is None and isinstance(checked := self._verdict(block), CheckedBlock):
                    turn.prepare(generation, checked.block)
        return turn.waiting

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        names = [block.generation for block in blocks]
        if len(set(names)) < len(names):
            raise ValueError(f"a batch needs at most one block per generation, found {names}")
        # Checked first: an unsupported block must raise before anything changes. Whether a block is outdated is decided
        # in ``_passed``, after the resolutions, which may commit what it builds on.
        verdicts = [self._verdict(block) for block in blocks]
        resolved = self._resolve(resolutions)
        self._runner.last_pass = ()
        self._store.begin_pass([self._generations[name].kv for name in names if name in self._generations])
        try:
            outcomes = self._passed(blocks, verdicts)
        except BaseException:
            for verdict in verdicts:
                if isinstance(verdict, CheckedBlock):
                    self._abandon(verdict)
            raise
        return [outcomes[index] for index in range(len(blocks))] + resolved

    def _passed(
        self, blocks: Sequence[Block], verdicts: Sequence[CheckedBlock | BlockRefused | Unknown | Failed]
    ) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        plan = PassPlan(self._store, self._prefill_chunk_tokens)
        for index, (block, verdict) in enumerate(zip(blocks, verdicts, strict=True)):
            outcome = self._settled(block)
            if outcome is None and isinstance(verdict, CheckedBlock):
                generation = self._generations[block.generation]
                outcome = plan.add(index, verdict, generation, self._rows.get(block.generation))
            elif not isinstance(verdict, CheckedBlock):
                outcome = outcome or verdict
            if outcome is not None:
                outcomes[index] = outcome
        return outcomes | self._run(plan.works)

    def _abandon(self, checked: CheckedBlock) -> None:
        """Undo what a failed pass changed of this block, unless the block is decided."""
        generation = self._generations[checked.block.generation]
        if generation.begun is checked and generation.open_round is None:
            # The row may follow tokens that are undone; it is computed again where it is needed.
            self._rows.drop(checked.block.generation)
            generation.abandon()

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        self._generations.pop(generation, None)
        self._rows.drop(generation)
        self._store.close(generation, keep_cache=keep_cache)

    def committed(self, generation: GenerationId) -> Sequence[int]:
        return () if (held := self._generations.get(generation)) is None else held.token_ids

    def forced(self, generation: GenerationId, most: int) -> tuple[int, ...]:
        return () if (held := self._generations.get(generation)) is None else held.forced(most)

    def due(self, generation: GenerationId, at_s: float) -> None:
        self._store.due(generation, at_s)

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        return self._store.evicted()

    def usage(self) -> KvUsage:
        return self._store.usage()

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self._runner.last_pass

    def _verdict(self, block: Block) -> CheckedBlock | BlockRefused | Unknown | Failed:
        """Check a block, unless it is the one already begun and checked."""
        generation = self._generations.get(block.generation)
        if generation is None:
            return Unknown(block.generation, block.round)
        block = generation.cut(block)
        if generation.begun is not None and generation.begun.block == block:
            return generation.begun
        if (wrong := generation.ungrammatical(block)) is not None:
            return wrong
        return self._validator.check(block, generation.params)

    def _settled(self, block: Block) -> Outcome | None:
        generation = self._generations.get(block.generation)
        return Unknown(block.generation, block.round) if generation is None else generation.settled(block)

    def _resolve(self, resolutions: Sequence[Resolution]) -> list[Outcome]:
        """Apply second halves of two-step outcomes, all of a batch at once; undo all if that fails."""
        found = [self._waiting_for(resolution) for resolution in resolutions]
        waiting = [
            (open_round, resolution.hidden)
            for open_round, resolution in zip(found, resolutions, strict=True)
            if isinstance(open_round, PendingSemanticRound)
        ]
        try:
            decisions = iter(decide_open(waiting, self._judges))
            return [
                self._resolved(outcome, next(decisions)) if isinstance(outcome, PendingSemanticRound) else outcome
                for outcome in found
            ]
        except BaseException:
            for resolution in resolutions:
                generation = self._generations.get(resolution.generation)
                if generation is not None and generation.open_round is not None:
                    generation.undo(generation.open_round.block)
            raise

    def _waiting_for(self, resolution: Resolution) -> PendingSemanticRound | Outcome:
        generation = self._generations.get(resolution.generation)
        if generation is None:
            return Unknown(resolution.generation, resolution.round)
        return generation.waiting_for(resolution, self._judges)

    def _resolved(self, open_round: PendingSemanticRound, decision: BlockDecision) -> Outcome:
        generation = self._generations[open_round.block.generation]
        self._store.touch(generation.kv)
        return self._commit(open_round.block, generation, RowDecision(decision, open_round.logprobs_of(decision)))

    def _run(self, works: Sequence[Work]) -> dict[int, Outcome]:
        computed, decisions = decide(self._runner.forward(works), self._judges)
        sound = {work.index for work in computed.works}
        outcomes: dict[int, Outcome] = {work.index: self._unsound(work) for work in works if work.index not in sound}
        works = computed.works
        # The KV is there now: what follows may move, publish or roll it back.
        for work in works:
            work.generation.kv.computed_tokens = work.kv_tokens
        outcomes |= {work.index: work.go_on() for work in works if work.remaining_tokens}
        decided = [work for work in works if not work.remaining_tokens]
        answers = list(zip(decided, decisions, strict=True))
        # Before ``_conclude`` rolls back and publishes blocks: they must hold the path's KV.
        self._runner.keep_paths([(work, one.block.path) for work, one in answers if isinstance(one, RowDecision)])
        return outcomes | {work.index: self._conclude(work, answer) for work, answer in answers}

    def _unsound(self, work: Work) -> Failed | Unfinished:
        """Retry a block of non-finite rows without its draft, which may be the cause; fail it if it has none.

        Under a ratio rule it fails at once: testing a draft or not by its value would change the output's distribution.
        """
        generation, block, segment = work.generation, work.block, work.segment
        if segment is not None and work.own_rows and block.draft and block.rule not in RATIO_RULES:
            self._runner.overwrite(segment)
            self._abandon(work.checked)
            generation.undrafted_round = block.round
            return Unfinished(block.generation, block.round, max(1, work.checked.position - segment.start))
        self._abandon(work.checked)
        generation.kv.withdraw()
        reason = f"the target's numbers at positions up to {work.computed_tokens - 1} are not finite"
        return Failed(block.generation, block.round, reason, non_finite=True)

    def _conclude(self, work: Work, answer: RowDecision | PendingSemanticRound) -> Outcome:
        generation, block = work.generation, work.block
        if generation.forced_scores.impossible:
            return generation.refuse_correction(block)
        if isinstance(answer, PendingSemanticRound):
            refused = generation.unlawful(block, answer.may_pass)
        else:
            path = [block.draft[node] for node in answer.block.path] if generation.grammar is not None else ()
            refused = generation.unlawful(block, path, answer.block.token_after)
        # The grammar is checked before anything is committed: a refused block leaves the generation as it was.
        if refused is not None:
            return refused
        if isinstance(answer, PendingSemanticRound):
            generation.open_round = answer
            generation.kv.busy = False  # the round waits for its device, and needs no KV to be decided
            return answer.undecided
        work.follow_branch(answer.block.path)
        return self._commit(block, generation, answer)

    def _commit(self, block: Block, generation: HeldGeneration, decision: RowDecision) -> Verified:
        """Commit a decided block, and keep or drop the logits row behind it."""
        row, decided = decision.kept_row, decision.block
        verified = generation.commit_block(block, decided, decision.logprobs, deferred=row is not None)
        if row is not None:
            self._rows.keep(block.generation, row)
        elif block.forced or decided.path or decided.token_after is not None:
            self._rows.drop(block.generation)
        return verified
