"""Verifier engine on torch: any Hugging Face causal LM, one forward pass per batch over a paged KV pool."""

from collections.abc import Sequence
from typing import Protocol

import torch
from transformers import PreTrainedModel

from outrider.engines.base import (
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
from outrider.engines.kept_rows import KeptRows
from outrider.engines.kv_store import KvStore, SequenceKv
from outrider.engines.limits import EngineLimits
from outrider.engines.paged_model import Move, PagedModel, Segment, kv_bytes_per_token
from outrider.engines.token_scores import TokenScores
from outrider.engines.verifier_checks import check_supported, fault, outside
from outrider.engines.verifier_decision import Decision, decide
from outrider.engines.verifier_work import HeldGeneration, Need, Work, need_of, score_rows
from outrider.errors import ContextTooLongError, ParameterError
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.sampling import TokenCounts
from outrider.scheduling.cost_model import VerifyCost
from outrider.types import GenerationId

# Of the KV budget, on top of it: what logits rows that wait for a device's correction may take.
_KEPT_ROWS_SHARE = 1 / 16


class ServableModel(Protocol):
    """What an engine needs of a loaded model (``outrider.models.registry.LoadedModel`` is one)."""

    @property
    def model(self) -> PreTrainedModel:
        """The causal LM, in eval mode on its device."""
        ...

    @property
    def vocab_size(self) -> int:
        """Token ids that may occur: logits behind it are padding and never sampled."""
        ...

    @property
    def max_context_tokens(self) -> int:
        """Positions the model was made for."""
        ...


class TorchVerifier:
    """``VerifierEngine`` for chains and trees under every lossless rule, deferred corrections included.

    After a deferred correction the logits row the device is to draw from stays here, and with it the KV of the last
    committed token. The rows take at most a sixteenth of the KV budget, besides it (but one is always kept); the least
    recently used are given up and, if needed again, computed from the last committed token.
    """

    def __init__(self, target: ServableModel, limits: EngineLimits) -> None:
        """Take over the target's model and allocate its KV pool."""
        total_blocks = limits.total_blocks(kv_bytes_per_token(target.model))
        self._limits = limits
        self._vocab_size = target.vocab_size
        self._store = KvStore(total_blocks, limits.block_tokens)
        self._rows = KeptRows(int(limits.kv_budget_bytes * _KEPT_ROWS_SHARE))
        self._no_logits = torch.empty(0, target.vocab_size, dtype=target.model.dtype, device=target.model.device)
        self._model = PagedModel(target.model, total_blocks, limits.block_tokens)
        self._generations: dict[GenerationId, HeldGeneration] = {}
        self._last_pass: tuple[VerifyCost, ...] = ()
        self.max_context_tokens = min(target.max_context_tokens, self._store.capacity_tokens)

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
                check_supported(block, generation.params, self._vocab_size)
        for name in names:
            if name in self._generations:
                self._store.touch(self._generations[name].kv)
        outcomes: dict[int, Outcome] = {}
        works: list[Work] = []
        admitted: set[SequenceKv] = set()
        chunk_left = self._limits.prefill_chunk_tokens
        for index, block in enumerate(blocks):
            planned = self._plan(index, block, chunk_left, admitted)
            if isinstance(planned, Work):
                works.append(planned)
                admitted.add(planned.generation.kv)
                chunk_left -= planned.prefix_tokens
            else:
                outcomes[index] = planned
        outcomes |= self._run(works)
        unknown: list[Outcome] = [Unknown(r.generation, r.round) for r in resolutions]  # no rule here has two steps
        return [outcomes[index] for index in range(len(blocks))] + unknown

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
        """Memory of logits rows that wait for a device's correction."""
        return self._rows.kept_bytes

    def _settled(self, block: Block) -> Outcome | None:
        """The outcome of a block that needs no forward pass: repeated, out of date, or impossible."""
        name, number = block.generation, block.round
        generation = self._generations.get(name)
        if generation is None:
            return Unknown(name, number)
        last = generation.last_outcome
        if last is not None and number <= last.round:
            return last if number == last.round else Stale(name, number)
        if block.position != len(generation.token_ids) or block.prefix_hash != generation.prefix_hash:
            return Stale(name, number)
        capacity = self._store.capacity_tokens
        reason = fault(block, generation.params, self._vocab_size, self.max_context_tokens, capacity)
        return None if reason is None else Refused(name, number, reason)

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
        if not self._store.reserve(kv, start + taken, admitted):
            return Unfinished(block.generation, block.round, lacking, waits_for_memory=True)
        return self._work(index, block, need, taken)

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

    def _work(self, index: int, block: Block, need: Need, taken: int) -> Work:
        generation = self._generations[block.generation]
        kv = generation.kv
        start, stop = kv.computed_tokens, kv.computed_tokens + taken
        remaining = max(0, len(need.token_ids) - stop)
        own_rows = 0 if remaining else need.own_rows
        scored = [(scores, rows) for scores in generation.open_scores if (rows := scores.unscored(start, stop))]
        segment = None
        if taken:
            kv.check_writable(start, stop)
            # Rows are the last of a segment, so those that score tokens bring all behind them along.
            logit_rows = stop - min([stop - own_rows, *(rows.start for _, rows in scored)])
            parents = () if remaining else block.parents or ()
            segment = Segment(need.token_ids[start:stop], start, kv.blocks, logit_rows, parents)
        return Work(index, block, generation, segment, own_rows, need.head, tuple(scored), stop, remaining)

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
        segments = [work.segment for work in works if work.segment is not None]
        self._last_pass = tuple(VerifyCost(len(segment.token_ids), segment.start) for segment in segments)
        logits = self._model.forward(segments).logits if segments else self._no_logits
        logits = logits[:, : self._vocab_size]  # what lies behind it is padding
        score_rows(logits, works)
        outcomes: dict[int, Outcome] = {}
        for work in works:
            work.generation.kv.computed_tokens = work.computed_tokens
            if work.remaining_tokens:
                context = [*work.generation.token_ids, *work.block.forced]
                work.generation.kv.publish(context, work.computed_tokens)
                outcomes[work.index] = Unfinished(work.block.generation, work.block.round, work.remaining_tokens)
        decided = [work for work in works if not work.remaining_tokens]
        decisions = list(zip(decided, decide(logits, works), strict=True))
        moves = [move for work, decision in decisions if (move := _move(work, decision.block.path)) is not None]
        if moves:
            self._model.move(moves)
        for work, decision in decisions:
            if not work.generation.forced_scores.impossible:
                outcomes[work.index] = self._commit(work, decision)
        for work in works:
            if work.generation.forced_scores.impossible:
                outcomes[work.index] = self._refuse_correction(work.generation, work.block)
        return outcomes

    def _commit(self, work: Work, decision: Decision) -> Verified:
        """Append what was decided and roll the KV back to it."""
        block, generation, kv = work.block, work.generation, work.generation.kv
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
        generation.unfinished = generation.prompt_scores = None
        generation.last_outcome = Verified(
            generation=block.generation,
            round=block.round,
            accepted_path=path,
            next_token=after,
            deferred=decision.block.deferred,
            cached_tokens=generation.cached_tokens or 0,
            logprobs=() if generation.logprobs is None else (*forced, *decision.logprobs),
            prompt_logprobs=() if scores is None else (None, *scores.entries),
        )
        return generation.last_outcome


def _move(work: Work, path: Sequence[int]) -> Move | None:
    """What brings a tree's winning path to the slots of its positions; None if it lies there already."""
    sources, targets = list(path), list(range(len(path)))
    if sources == targets:
        return None
    blocks, base = work.generation.kv.blocks, work.position
    return Move(blocks, [base + node for node in sources], [base + depth for depth in targets])
