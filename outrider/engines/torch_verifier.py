"""Verifier engine on torch: any Hugging Face causal LM, one forward pass per batch over a paged KV pool."""

from collections.abc import Sequence
from typing import Protocol

import torch
from transformers import PreTrainedModel

from outrider.engines.base import (
    AcceptanceRule,
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
from outrider.engines.kv_store import KvStore, SequenceKv
from outrider.engines.limits import EngineLimits
from outrider.engines.paged_model import PagedModel, Segment, kv_bytes_per_token
from outrider.engines.verifier_work import (
    Decision,
    HeldGeneration,
    PromptScores,
    Work,
    decide,
    own_rows,
    score_prompts,
)
from outrider.errors import ContextTooLongError, ParameterError, UnsupportedBlockError
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.sampling import TokenCounts
from outrider.types import GenerationId

_RULES = frozenset({AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE})  # both accept what the target would choose


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
    """``VerifierEngine`` for chains under greedy and shared-noise acceptance."""

    def __init__(self, target: ServableModel, limits: EngineLimits) -> None:
        """Take over the target's model and allocate its KV pool."""
        total_blocks = limits.total_blocks(kv_bytes_per_token(target.model))
        self._limits = limits
        self._vocab_size = target.vocab_size
        self._store = KvStore(total_blocks, limits.block_tokens)
        self._model = PagedModel(target.model, total_blocks, limits.block_tokens)
        self._generations: dict[GenerationId, HeldGeneration] = {}
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
        if bad := _outside(token_ids, self._vocab_size):
            raise ParameterError("prompt", f"token ids in 0..{self._vocab_size - 1}", bad[0])
        self._generations[request.generation] = HeldGeneration(
            params=request.params,
            token_ids=token_ids,
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, token_ids),
            kv=self._store.open(request.generation),
            counts=TokenCounts(self._vocab_size, request.prompt_ids, request.output_ids)
            if request.params.penalised
            else None,
            logprobs=request.logprobs,
            prompt_scores=PromptScores(request.prompt_ids, request.logprobs or 0) if request.prompt_logprobs else None,
        )

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify a ragged batch in one forward pass; see ``VerifierEngine.verify``."""
        names = [block.generation for block in blocks]
        if len(set(names)) < len(names):
            raise ValueError(f"a batch needs at most one block per generation, found {names}")
        for block in blocks:
            self._check_supported(block)
            if block.generation in self._generations:
                self._store.touch(self._generations[block.generation].kv)
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
        self._store.close(generation, keep_cache=keep_cache)

    def usage(self) -> KvUsage:
        """Present KV memory."""
        return self._store.usage()

    def _check_supported(self, block: Block) -> None:
        generation = self._generations.get(block.generation)
        lossy = block.rule is AcceptanceRule.GREEDY and generation is not None and not generation.params.greedy
        for asked, wrong in (
            (f"the {block.rule} rule", block.rule not in _RULES),
            ("the greedy rule for a sampled generation", lossy),
            ("a token tree", block.parents is not None),
            ("a draft distribution", block.distribution is not None),
            ("a deferred correction", block.defer_correction),
            (f"details {sorted(block.details)}", bool(block.details)),
        ):
            if wrong:
                raise UnsupportedBlockError(
                    f"block {block.generation}/{block.round} asks for {asked}; this engine verifies chains by the "
                    "greedy and shared-noise rules"
                )

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
        refusal = self._refusal(block)
        return None if refusal is None else Refused(name, number, refusal)

    def _plan(self, index: int, block: Block, chunk_left: int, admitted: set[SequenceKv]) -> Work | Outcome:
        """Decide what a block contributes to the pass, or what its outcome is without one."""
        settled = self._settled(block)
        if settled is not None:
            return settled
        name, number = block.generation, block.round
        generation = self._generations[name]
        kv, context = generation.kv, [*generation.token_ids, *block.forced]
        if block != generation.unfinished:
            # What another block's forced tokens left behind the committed ones is not this block's.
            kv.rollback(len(generation.token_ids) - 1)
            generation.unfinished = block
        restored = generation.restore(context)
        if generation.cached_tokens is None:
            generation.cached_tokens = restored
        rows = len(block.draft) + block.bonus
        wanted = [*context, *block.draft][: len(context) - 1 + rows]
        lacking = len(wanted) - kv.computed_tokens
        # The block's own rows always go together; what lies before them is prefill, and chunked.
        prefill = max(0, lacking - rows)
        chunk = min(prefill, chunk_left)
        taken = lacking if chunk == prefill else chunk
        kv.busy = True
        if taken == 0 and lacking > 0:
            return Unfinished(name, number, lacking)
        stop = kv.computed_tokens + taken
        if not self._store.reserve(kv, stop, admitted):
            return Unfinished(name, number, lacking, waits_for_memory=True)
        own = rows if taken == lacking else 0
        scores = generation.prompt_scores
        prompt_positions = range(0) if scores is None else scores.unscored(kv.computed_tokens, stop)
        segment = None
        if taken:
            kv.check_writable(kv.computed_tokens, stop)
            # Rows are the last of a segment, so those that score the prompt bring all behind them along.
            logit_rows = stop - prompt_positions.start if prompt_positions else own
            segment = Segment(wanted[kv.computed_tokens : stop], kv.computed_tokens, kv.blocks, logit_rows)
        return Work(index, block, generation, context, segment, own, prompt_positions, stop, lacking - taken)

    def _refusal(self, block: Block) -> str | None:
        length = block.position + len(block.forced) + len(block.draft) + 1
        if length > self.max_context_tokens:
            return f"needs {length} positions, found a limit of {self.max_context_tokens}; send a shorter draft"
        if bad := _outside([*block.forced, *block.draft], self._vocab_size):
            return f"needs token ids in 0..{self._vocab_size - 1}, found {bad[0]}"
        return None

    def _run(self, works: Sequence[Work]) -> dict[int, Outcome]:
        segments = [work.segment for work in works if work.segment is not None]
        logits = self._model.forward(segments).logits if segments else torch.empty(0, self._vocab_size)
        logits = logits[:, : self._vocab_size]  # what lies behind it is padding
        score_prompts(logits, works)
        decided = [work for work in works if work.remaining_tokens == 0]
        outcomes: dict[int, Outcome] = {}
        for work in works:
            if work.remaining_tokens:
                work.generation.kv.computed_tokens = work.computed_tokens
                work.generation.kv.publish(work.context, work.computed_tokens)
                outcomes[work.index] = Unfinished(work.block.generation, work.block.round, work.remaining_tokens)
        for work, decision in zip(decided, decide(own_rows(logits, works), decided), strict=True):
            outcomes[work.index] = self._commit(work, decision)
        return outcomes

    def _commit(self, work: Work, decision: Decision) -> Verified:
        """Append what was decided and roll the KV back to it."""
        block, generation = work.block, work.generation
        chain, scores = decision.chain, generation.prompt_scores
        after = () if chain.token_after is None else (chain.token_after,)
        generation.append([*block.forced, *block.draft[: chain.accepted_len], *after])
        kv = generation.kv
        kv.computed_tokens = work.computed_tokens
        kv.rollback(len(generation.token_ids) - 1)
        kv.publish(generation.token_ids, kv.computed_tokens)
        kv.busy = False
        generation.unfinished = generation.prompt_scores = None
        generation.last_outcome = Verified(
            generation=block.generation,
            round=block.round,
            accepted_path=tuple(range(chain.accepted_len)),
            next_token=chain.token_after,
            cached_tokens=generation.cached_tokens or 0,
            logprobs=decision.logprobs,
            prompt_logprobs=() if scores is None else tuple(scores.entries),
        )
        return generation.last_outcome


def _outside(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    return [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]
