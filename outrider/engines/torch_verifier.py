"""Verifier engine on torch: any Hugging Face causal LM, one forward pass per batch over a paged KV pool."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
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
from outrider.errors import ContextTooLongError, ParameterError, UnsupportedBlockError
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.sampling import RowGroup, TokenCounts
from outrider.types import GenerationId, SamplingParams
from outrider.verification.chain import ChainDecision, verify_chains

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


@dataclass(slots=True, eq=False)
class _Generation:
    """One open generation. ``token_ids`` is the committed sequence; its last token is never in the KV."""

    params: SamplingParams
    token_ids: list[int]
    prefix_hash: int
    kv: SequenceKv
    counts: TokenCounts | None
    last_outcome: Verified | None = None
    cached_tokens: int | None = None  # known once the prefix cache was asked
    unfinished: Block | None = None  # the block whose prefix is being computed in chunks

    def append(self, token_ids: Sequence[int]) -> None:
        self.token_ids += token_ids
        self.prefix_hash = extend_prefix_hash(self.prefix_hash, token_ids)
        if self.counts is not None:
            self.counts.append(token_ids)


@dataclass(frozen=True, slots=True)
class _Work:
    """What one block contributes to this forward pass."""

    index: int  # of the block in the batch
    block: Block
    generation: _Generation
    context: list[int]  # committed and forced tokens
    segment: Segment | None  # None: nothing left to compute
    computed_tokens: int  # positions with KV after the pass
    remaining_tokens: int  # positions still to compute after it; 0 decides the block


class TorchVerifier:
    """``VerifierEngine`` for chains under greedy and shared-noise acceptance."""

    def __init__(self, target: ServableModel, limits: EngineLimits) -> None:
        """Take over the target's model and allocate its KV pool."""
        total_blocks = limits.total_blocks(kv_bytes_per_token(target.model))
        self._limits = limits
        self._vocab_size = target.vocab_size
        self._store = KvStore(total_blocks, limits.block_tokens)
        self._model = PagedModel(target.model, total_blocks, limits.block_tokens)
        self._generations: dict[GenerationId, _Generation] = {}
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
        self._generations[request.generation] = _Generation(
            params=request.params,
            token_ids=token_ids,
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, token_ids),
            kv=self._store.open(request.generation),
            counts=TokenCounts(self._vocab_size, request.prompt_ids, request.output_ids)
            if request.params.penalised
            else None,
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
        works: list[_Work] = []
        admitted: set[SequenceKv] = set()
        chunk_left = self._limits.prefill_chunk_tokens
        for index, block in enumerate(blocks):
            planned = self._plan(index, block, chunk_left, admitted)
            if isinstance(planned, _Work):
                works.append(planned)
                admitted.add(planned.generation.kv)
                chunk_left -= self._prefix_tokens(planned)
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

    def _plan(self, index: int, block: Block, chunk_left: int, admitted: set[SequenceKv]) -> _Work | Outcome:
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
        restored = kv.restore(context)
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
        segment = None
        if taken:
            kv.check_writable(kv.computed_tokens, stop)
            segment = Segment(
                wanted[kv.computed_tokens : stop], kv.computed_tokens, kv.blocks, rows if taken == lacking else 0
            )
        return _Work(index, block, generation, context, segment, stop, lacking - taken)

    def _refusal(self, block: Block) -> str | None:
        length = block.position + len(block.forced) + len(block.draft) + 1
        if length > self.max_context_tokens:
            return f"needs {length} positions, found a limit of {self.max_context_tokens}; send a shorter draft"
        if bad := _outside([*block.forced, *block.draft], self._vocab_size):
            return f"needs token ids in 0..{self._vocab_size - 1}, found {bad[0]}"
        return None

    def _prefix_tokens(self, work: _Work) -> int:
        return 0 if work.segment is None else len(work.segment.token_ids) - work.segment.logit_rows

    def _run(self, works: Sequence[_Work]) -> dict[int, Outcome]:
        segments = [work.segment for work in works if work.segment is not None]
        logits = self._model.forward(segments).logits if segments else torch.empty(0, self._vocab_size)
        logits = logits[:, : self._vocab_size]  # what lies behind it is padding
        decided = [work for work in works if work.remaining_tokens == 0]
        outcomes: dict[int, Outcome] = {}
        for work in works:
            if work.remaining_tokens:
                work.generation.kv.computed_tokens = work.computed_tokens
                work.generation.kv.publish(work.context, work.computed_tokens)
                outcomes[work.index] = Unfinished(work.block.generation, work.block.round, work.remaining_tokens)
        for work, decision in zip(decided, _decide(logits, decided), strict=True):
            outcomes[work.index] = self._commit(work, decision)
        return outcomes

    def _commit(self, work: _Work, decision: ChainDecision) -> Verified:
        """Append what was decided and roll the KV back to it."""
        block, generation = work.block, work.generation
        accepted = block.draft[: decision.accepted_len]
        after = () if decision.token_after is None else (decision.token_after,)
        generation.append([*block.forced, *accepted, *after])
        kv = generation.kv
        kv.computed_tokens = work.computed_tokens
        kv.rollback(len(generation.token_ids) - 1)
        kv.publish(generation.token_ids, kv.computed_tokens)
        kv.busy = False
        generation.unfinished = None
        generation.last_outcome = Verified(
            generation=block.generation,
            round=block.round,
            accepted_path=tuple(range(decision.accepted_len)),
            next_token=decision.token_after,
            cached_tokens=generation.cached_tokens or 0,
        )
        return generation.last_outcome


def _decide(logits: torch.Tensor, works: Sequence[_Work]) -> list[ChainDecision]:
    """Match each block's draft with the target's choices; ``logits`` are the rows of all works in order."""
    groups = []
    for work in works:
        counts = work.generation.counts
        if counts is not None and work.block.forced:
            counts = deepcopy(counts)
            counts.append(work.block.forced)
        rows = len(work.block.draft) + work.block.bonus
        groups.append(RowGroup(work.generation.params, len(work.context), counts, work.block.draft, rows))
    return verify_chains(logits, groups, [work.block.draft for work in works])


def _outside(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    return [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]
