"""The verifier engine but for its model: generations, KV blocks, what a pass computes, and what its logits decide.

The model (``outrider.engines.forward_model``) computes; all that makes an engine correct is here, once for every model.
"""

from collections.abc import Sequence

import torch

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import ContextTooLongError, ParameterError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import (
    Block,
    KvUsage,
    OpenGeneration,
    Outcome,
    Refused,
    Resolution,
    Stale,
    Unfinished,
    Unknown,
    Verified,
)
from outrider.engines.forward_model import BranchModel, MaskedModel, Segment
from outrider.engines.kv.store import KvStore, SequenceKv
from outrider.engines.verifier.checks import check_supported, fault, outside
from outrider.engines.verifier.decision import Decision, decide
from outrider.engines.verifier.kept_rows import KeptRows
from outrider.engines.verifier.token_scores import TokenScores
from outrider.engines.verifier.tree_branches import Branches, ForkedPath, branches_of, fork_paths
from outrider.engines.verifier.two_steps import OpenRound, open_bytes, wants_hidden
from outrider.engines.verifier.work import HeldGeneration, Need, Work, need_of, rows_in_order, score_rows
from outrider.sampling.device_tensors import index_tensor
from outrider.sampling.logits import TokenCounts
from outrider.verification.semantic import MismatchJudge, hidden_fault


class PagedVerifier:
    """``VerifierEngine`` for chains and trees under every rule, deferred corrections included.

    After a deferred correction the logits row the device is to draw from stays here, and with it the KV of the last
    committed token. Of the rows one is always kept, and as many as their memory allows; the least recently used are
    given up and, if needed again, computed from the last committed token.
    """

    def __init__(
        self,
        model: MaskedModel | BranchModel,
        *,
        vocab_size: int,
        max_context_tokens: int,
        prefill_chunk_tokens: int,
        kept_rows_bytes: int,
        judge: MismatchJudge | None = None,
    ) -> None:
        """Take over a model and all its KV blocks.

        Args:
            model: the target.
            vocab_size: token ids that may occur: logits behind it are padding and never sampled.
            max_context_tokens: positions the model was made for.
            prefill_chunk_tokens: prefix positions computed per pass, over all cold blocks.
            kept_rows_bytes: memory of rows kept for deferred corrections, besides the KV's.
            judge: of mismatches; without one there is no semantic rule.
        """
        self._model = model
        self._masked = model if isinstance(model, MaskedModel) else None
        self._branching = None if isinstance(model, MaskedModel) else model
        self._judge = judge
        self._vocab_size = vocab_size
        self._prefill_chunk_tokens = prefill_chunk_tokens
        self._store = KvStore(model.total_blocks, model.block_tokens)
        self._rows = KeptRows(kept_rows_bytes)
        self._no_logits = model.no_logits
        self._generations: dict[GenerationId, HeldGeneration] = {}
        self._last_pass: tuple[VerifyCost, ...] = ()
        self.max_context_tokens = min(max_context_tokens, self._store.capacity_tokens)

    def open(self, request: OpenGeneration) -> None:
        """Hold a generation; see ``VerifierEngine.open``."""
        token_ids = [*request.prompt_ids, *request.output_ids]
        if not request.prompt_ids:
            raise ParameterError("prompt", "at least one token", "none")
        if len(token_ids) >= self.max_context_tokens:
            raise ContextTooLongError(
                f"needs {len(token_ids) + 1} positions for prompt and output, found a limit of "
                f"{self.max_context_tokens} (model context and KV budget); send a shorter prompt or raise the budget"
            )
        if bad := outside(token_ids, self._vocab_size):
            raise ParameterError("prompt", f"token ids in 0..{self._vocab_size - 1}", bad[0])
        self._rows.drop(request.generation)
        prompt_scores = TokenScores(1, request.prompt_ids[1:], request.logprobs or 0)
        self._generations[request.generation] = HeldGeneration(
            params=request.params,
            token_ids=token_ids,
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, token_ids),
            kv=self._store.open(request.generation),
            counts=TokenCounts(self._vocab_size, request.prompt_ids, request.output_ids)
            if request.params.penalised
            else None,
            logprobs=request.logprobs,
            prompt_scores=prompt_scores if request.prompt_logprobs else None,
        )

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify a ragged batch in one forward pass; see ``VerifierEngine.verify``."""
        names = [block.generation for block in blocks]
        if len(set(names)) < len(names):
            raise ValueError(f"a batch needs at most one block per generation, found {names}")
        for block in blocks:
            generation = self._generations.get(block.generation)
            if generation is not None:
                check_supported(block, generation.params, self._vocab_size, judged=self._judge is not None)
        resolved = [self._resolve(resolution) for resolution in resolutions]
        for name in names:
            if name in self._generations:
                self._store.touch(self._generations[name].kv)
        outcomes: dict[int, Outcome] = {}
        works: list[Work] = []
        admitted: set[SequenceKv] = set()
        chunk_left = self._prefill_chunk_tokens
        for index, block in enumerate(blocks):
            planned = self._plan(index, block, chunk_left, admitted)
            if isinstance(planned, Work):
                works.append(planned)
                admitted.add(planned.generation.kv)
                chunk_left -= planned.prefix_tokens
            else:
                outcomes[index] = planned
        outcomes |= self._run(works)
        return [outcomes[index] for index in range(len(blocks))] + resolved

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Forget a generation; see ``VerifierEngine.close``."""
        self._generations.pop(generation, None)
        self._rows.drop(generation)
        self._store.close(generation, keep_cache=keep_cache)

    def usage(self) -> KvUsage:
        """Present KV memory."""
        return self._store.usage()

    def last_pass(self) -> tuple[VerifyCost, ...]:
        """What the last ``verify`` computed; see ``VerifierEngine.last_pass``."""
        return self._last_pass

    @property
    def kept_row_bytes(self) -> int:
        """Memory of logits rows that wait for a device's correction, and of hidden states that wait for a device's."""
        waiting = [generation.open_round for generation in self._generations.values()]
        return self._rows.kept_bytes + open_bytes(waiting)

    def _settled(self, block: Block) -> Outcome | None:
        """The outcome of a block that needs no forward pass: repeated, out of date, or impossible."""
        name, number = block.generation, block.round
        generation = self._generations.get(name)
        if generation is None:
            return Unknown(name, number)
        last, open_round = generation.last_outcome, generation.open_round
        if last is not None and number <= last.round:
            return last if number == last.round else Stale(name, number)
        if open_round is not None and number <= open_round.block.round:
            return open_round.undecided if number == open_round.block.round else Stale(name, number)
        if block.position != len(generation.token_ids) or block.prefix_hash != generation.prefix_hash:
            return Stale(name, number)
        capacity = self._store.capacity_tokens
        reason = fault(block, generation.params, self._vocab_size, self.max_context_tokens, capacity, self._judge)
        if reason is None and (branches := self._branches(block)) is not None:
            needed = branches.blocks_needed(self._model.block_tokens)
            if needed > self._model.total_blocks:
                found = self._model.total_blocks
                reason = f"needs {needed} KV blocks for a tree's paths, found {found}; send a smaller tree"
        return None if reason is None else Refused(name, number, reason)

    def _resolve(self, resolution: Resolution) -> Outcome:
        """Apply the second half of a two-step outcome."""
        name, number = resolution.generation, resolution.round
        generation = self._generations.get(name)
        if generation is None:
            return Unknown(name, number)
        open_round, last = generation.open_round, generation.last_outcome
        if open_round is None or open_round.block.round != number:
            return last if last is not None and last.round == number else Stale(name, number)
        assert self._judge is not None, "a semantic block is refused where nobody can judge it"
        reason = hidden_fault(resolution.hidden, len(open_round.mismatches), self._judge.drafter_width)
        if reason is not None:
            return Refused(name, number, reason)
        decision = open_round.decide(self._judge, resolution.hidden, resolution.channel)
        self._store.touch(generation.kv)
        logprobs = open_round.logprobs_of(decision)
        return self._commit(open_round.block, generation, Decision(decision, logprobs, hidden=open_round.hidden))

    def _branches(self, block: Block) -> Branches | None:
        """The paths of its tree, if the model takes trees so."""
        if self._branching is None:
            return None
        return branches_of(block, block.position + len(block.forced))

    def _plan(self, index: int, block: Block, chunk_left: int, admitted: set[SequenceKv]) -> Work | Outcome:
        """Decide what a block contributes to the pass, or what its outcome is without one."""
        settled = self._settled(block)
        if settled is not None:
            return settled
        generation, kept_row = self._generations[block.generation], self._rows.get(block.generation)
        if block != generation.unfinished:
            generation.begin(block, kept_row)
        if generation.forced_scores.impossible:
            return self._refuse_correction(generation, block)
        need, kv = need_of(generation, block, kept_row), generation.kv
        start = self._resident(generation, block, need)
        lacking = max(0, len(need.token_ids) - start)
        # The block's own rows always go together; what lies before them is prefill, and chunked.
        prefill = max(0, lacking - need.own_rows)
        chunk = min(prefill, chunk_left)
        taken = lacking if chunk == prefill else chunk
        kv.busy = True
        if taken == 0 and lacking > 0:
            return Unfinished(block.generation, block.round, lacking)
        branches = self._branches(block) if taken == lacking and need.own_rows else None
        positions = start + taken if branches is None else branches.own_positions()
        forked_blocks = 0 if branches is None else sum(branches.fork_blocks(self._model.block_tokens))
        if not self._store.reserve(kv, positions, admitted, forked_blocks):
            return Unfinished(block.generation, block.round, lacking, waits_for_memory=True)
        return self._work(index, block, need, taken, branches)

    def _resident(self, generation: HeldGeneration, block: Block, need: Need) -> int:
        """Slots whose KV is there, less those whose rows are needed; shares what the prefix cache has."""
        kv = generation.kv
        if not need.token_ids:
            return kv.computed_tokens
        kv.rollback(need.first_row)
        restored = kv.restore([*generation.token_ids, *block.forced][: need.first_row + 1])
        if generation.cached_tokens is None:
            generation.cached_tokens = restored
        return kv.computed_tokens

    def _work(self, index: int, block: Block, need: Need, taken: int, branches: Branches | None) -> Work:
        generation = self._generations[block.generation]
        kv = generation.kv
        start, stop = kv.computed_tokens, kv.computed_tokens + taken
        remaining = max(0, len(need.token_ids) - stop)
        own_rows = 0 if remaining else need.own_rows
        scored = [(scores, rows) for scores in generation.open_scores if (rows := scores.unscored(start, stop))]
        segment, forked = None, list[ForkedPath]()
        if taken:
            # Rows are the last of a segment, so those that score tokens bring all behind them along.
            logit_rows = stop - min([stop - own_rows, *(rows.start for _, rows in scored)])
            tokens = need.token_ids[start:stop]
            parents = () if remaining else block.parents or ()
            if branches is not None:
                path, context = branches.paths[0], need.token_ids[: branches.length]
                tokens, parents = [*context[start:], *(block.draft[node] for node in path)], ()
                logit_rows -= len(block.draft) - len(path)
                forked = fork_paths(branches, kv, context, block.draft, start, self._model.block_tokens)
            segment = Segment(tokens, start, kv.blocks, logit_rows, parents)
            kv.check_writable(start, segment.stop)
        return Work(
            index=index,
            block=block,
            generation=generation,
            segment=segment,
            own_rows=own_rows,
            head=need.head,
            scored=tuple(scored),
            computed_tokens=stop,
            remaining_tokens=remaining,
            branches=branches,
            forked=tuple(forked),
        )

    def _refuse_correction(self, generation: HeldGeneration, block: Block) -> Refused:
        generation.unfinished = None
        generation.kv.rollback(len(generation.token_ids))
        generation.kv.busy = False
        return Refused(
            block.generation,
            block.round,
            f"needs a correction the target could have said at position {block.position}, found token "
            f"{block.forced[0]}, whose probability there is 0; draw it from the row that was sent",
        )

    def _run(self, works: Sequence[Work]) -> dict[int, Outcome]:
        logits, hidden = self._forward(works)
        score_rows(logits, works)
        for work in works:
            work.generation.kv.computed_tokens = work.kv_tokens
        outcomes = {work.index: self._go_on(work) for work in works if work.remaining_tokens}
        decided = [work for work in works if not work.remaining_tokens]
        answers = list(zip(decided, decide(logits, hidden, works, self._judge), strict=True))
        if self._masked is not None:
            decided_paths = [(work, answer.block.path) for work, answer in answers if isinstance(answer, Decision)]
            moves = [move for work, path in decided_paths if (move := work.move(path)) is not None]
            if moves:
                self._masked.move(moves)
        return outcomes | {work.index: self._conclude(work, answer) for work, answer in answers}

    def _go_on(self, work: Work) -> Outcome:
        """A block that needs another pass."""
        generation, block = work.generation, work.block
        if generation.forced_scores.impossible:
            return self._refuse_correction(generation, block)
        generation.kv.publish([*generation.token_ids, *block.forced], work.computed_tokens)
        return Unfinished(block.generation, block.round, work.remaining_tokens)

    def _conclude(self, work: Work, answer: Decision | OpenRound) -> Outcome:
        """A block whose rows are there."""
        generation, block = work.generation, work.block
        if generation.forced_scores.impossible:
            return self._refuse_correction(generation, block)
        if isinstance(answer, OpenRound):
            generation.open_round = answer
            generation.kv.busy = False  # its device is waited for, and its KV is not needed to decide it
            return answer.undecided
        work.follow_branch(answer.block.path)
        return self._commit(block, generation, answer)

    def _forward(self, works: Sequence[Work]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``[R, vocab]``, ``[R, d]`` if wanted: the rows of ``works`` in turn, a tree's in the order of its nodes."""
        segments = [segment for work in works for segment in work.segments]
        self._last_pass = tuple(VerifyCost(len(segment.token_ids), segment.start) for segment in segments)
        if not segments:
            return self._no_logits[:, : self._vocab_size], None
        wanted = any(work.own_rows and wants_hidden(work.block) for work in works)
        if self._branching is None:
            result = self._model.forward(segments, want_hidden=wanted)
        else:
            copies = [copy for work in works for path in work.forked for copy in path.copies]
            result = self._branching.forward(segments, copies, want_hidden=wanted)
        logits = result.logits[:, : self._vocab_size]  # padding lies behind it
        hidden, order = result.hidden, rows_in_order(works)
        if order is None:
            return logits, hidden
        at = index_tensor(order, logits.device)
        return logits[at], None if hidden is None else hidden[at]

    def _commit(self, block: Block, generation: HeldGeneration, decision: Decision) -> Verified:
        """Append what was decided and roll the KV back to it."""
        kv = generation.kv
        path, after = decision.block.path, decision.block.token_after
        committed = [*block.forced, *(block.draft[node] for node in path), *([] if after is None else [after])]
        generation.commit(committed)
        if decision.kept_row is not None:
            self._rows.keep(block.generation, decision.kept_row)
            generation.deferred = True
        elif committed:
            self._rows.drop(block.generation)
            generation.deferred = False
        kv.rollback(len(generation.token_ids) - (not generation.deferred))
        kv.publish(generation.token_ids, kv.computed_tokens)
        kv.busy = False
        scores, forced = generation.prompt_scores, generation.forced_scores.entries
        generation.unfinished = generation.open_round = generation.prompt_scores = None
        generation.last_outcome = Verified(
            generation=block.generation,
            round=block.round,
            accepted_path=path,
            next_token=after,
            deferred=decision.block.deferred,
            cached_tokens=generation.cached_tokens or 0,
            logprobs=() if generation.logprobs is None else (*forced, *decision.logprobs),
            prompt_logprobs=() if scores is None else (None, *scores.entries),
            hidden=decision.hidden,
        )
        return generation.last_outcome
