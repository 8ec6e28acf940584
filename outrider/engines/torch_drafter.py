"""Drafter engine on torch: batched, token by token, over a paged KV pool.

All started blocks advance together: each ``step`` is one forward pass in which a cold block computes a chunk of its
prefix and a warm one draws its next token. Blocks join and leave between steps, so nobody waits for a longer window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from outrider.drafting.features import draft_features, to_draft_features
from outrider.engines.base import (
    AcceptanceRule,
    Draft,
    DraftAnswer,
    DraftFeatures,
    DraftRequest,
    FloatRow,
    KvUsage,
    NeedsPrefix,
    OpenGeneration,
)
from outrider.engines.kv_store import KvStore, SequenceKv
from outrider.engines.limits import EngineLimits
from outrider.engines.paged_model import PagedModel, PassResult, Segment, kv_bytes_per_token
from outrider.engines.torch_verifier import ServableModel
from outrider.errors import ContextTooLongError, UnsupportedBlockError
from outrider.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.sampling import RowGroup, TokenCounts, choose_tokens
from outrider.types import GenerationId, SamplingParams

_RULES = frozenset({AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE})


@dataclass(slots=True)
class _Job:
    """A block being drafted."""

    request: DraftRequest
    token_ids: list[int] = field(default_factory=list)
    features: list[DraftFeatures] = field(default_factory=list)
    hidden: list[FloatRow] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Generation:
    """One generation as the drafter knows it; ``token_ids`` is the committed sequence."""

    params: SamplingParams
    prompt_tokens: int
    token_ids: list[int]
    prefix_hash: int
    kv: SequenceKv
    drafted: list[int] = field(default_factory=list)  # tokens behind the committed ones whose KV may still serve
    counts: TokenCounts | None = None
    job: _Job | None = None


class TorchDrafter:
    """``DrafterEngine`` for chains drawn greedily or with the noise the target draws with."""

    def __init__(self, drafter: ServableModel, limits: EngineLimits) -> None:
        """Take over the draft model and allocate its KV pool."""
        total_blocks = limits.total_blocks(kv_bytes_per_token(drafter.model))
        self._limits = limits
        self._vocab_size = drafter.vocab_size
        self._store = KvStore(total_blocks, limits.block_tokens)
        self._model = PagedModel(drafter.model, total_blocks, limits.block_tokens)
        self._generations: dict[GenerationId, _Generation] = {}
        self._ready_answers: list[DraftAnswer] = []
        self.max_context_tokens = min(drafter.max_context_tokens, self._store.capacity_tokens)

    def open(self, request: OpenGeneration) -> None:
        """Hold a generation; see ``DrafterEngine.open``."""
        token_ids = [*request.prompt_ids, *request.output_ids]
        if len(token_ids) >= self.max_context_tokens:
            raise ContextTooLongError(
                f"needs {len(token_ids) + 1} positions, found a drafter limit of {self.max_context_tokens} (draft "
                "model context and KV budget); raise the drafter group's KV budget"
            )
        self._generations[request.generation] = _Generation(
            params=request.params,
            prompt_tokens=len(request.prompt_ids),
            token_ids=token_ids,
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, token_ids),
            kv=self._store.open(request.generation),
        )

    def submit(self, request: DraftRequest) -> None:
        """Start a block; see ``DrafterEngine.submit``. What cannot be drafted is answered by the next ``step``."""
        if request.rule not in _RULES:
            raise UnsupportedBlockError(
                f"draft {request.generation}/{request.round} asks for the {request.rule} rule; this engine drafts for "
                f"{', '.join(sorted(_RULES))}"
            )
        generation = self._generations.get(request.generation)
        if generation is None or not self._synchronise(generation, request):
            self._ready_answers.append(NeedsPrefix(request.generation, request.round))
            return
        room = self.max_context_tokens - len(generation.token_ids)
        if room <= 0:
            # The generation has outgrown this drafter: an empty block, and no KV that could never be computed.
            position = len(generation.token_ids)
            self._ready_answers.append(Draft(request.generation, request.round, position, (), ()))
            return
        # With the context nearly full a shorter block is drafted, never a wrong one.
        generation.job = _Job(replace(request, window=min(request.window, room)))
        generation.kv.busy = True

    @property
    def busy(self) -> bool:
        """Whether ``step`` has work."""
        return bool(self._ready_answers) or any(g.job is not None for g in self._generations.values())

    def step(self) -> list[DraftAnswer]:
        """One batched forward pass; see ``DrafterEngine.step``."""
        answers, self._ready_answers = self._ready_answers, []
        works: list[tuple[_Generation, Segment]] = []
        admitted: set[SequenceKv] = set()
        chunk_left = self._limits.prefill_chunk_tokens
        # The oldest first: it may take memory from younger ones, so somebody always gets on.
        started = sorted((g for g in self._generations.values() if g.job), key=lambda g: g.kv.order)
        for generation in started:
            segment = self._segment(generation, chunk_left, admitted)
            if segment is not None:
                works.append((generation, segment))
                admitted.add(generation.kv)
                chunk_left -= len(segment.token_ids) - segment.logit_rows
        if works:
            self._advance(works)
        for generation in started:
            job = generation.job
            if job is not None and self._complete(generation, job):
                answers.append(self._finish(generation, job))
        return answers

    def close(self, generation: GenerationId) -> None:
        """Forget a generation and its block."""
        self._generations.pop(generation, None)
        self._store.close(generation, keep_cache=True)

    def usage(self) -> KvUsage:
        """Present KV memory."""
        return self._store.usage()

    def _synchronise(self, generation: _Generation, request: DraftRequest) -> bool:
        """Bring the committed sequence to what the request says; keep KV as far as it still fits."""
        at = request.feedback_position
        if at > len(generation.token_ids) or at < generation.prompt_tokens:
            return False
        if at == len(generation.token_ids):
            prefix_hash = extend_prefix_hash(generation.prefix_hash, request.feedback)
        else:
            prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, [*generation.token_ids[:at], *request.feedback])
        if prefix_hash != request.prefix_hash:
            return False
        known = [*generation.token_ids[at:], *generation.drafted]
        common = 0
        for mine, committed in zip(known, request.feedback, strict=False):
            if mine != committed:
                break
            common += 1
        generation.token_ids[at:] = request.feedback
        generation.prefix_hash = prefix_hash
        generation.drafted = []
        generation.kv.rollback(min(at + common, len(generation.token_ids) - 1))
        generation.kv.publish(generation.token_ids, generation.kv.computed_tokens)
        if generation.params.penalised:
            output = generation.token_ids[generation.prompt_tokens :]
            prompt = generation.token_ids[: generation.prompt_tokens]
            generation.counts = TokenCounts(self._vocab_size, prompt, output)
        return True

    def _segment(self, generation: _Generation, chunk_left: int, admitted: set[SequenceKv]) -> Segment | None:
        """What this generation computes in this pass; None if nothing, or if chunk or memory are used up."""
        job, kv = generation.job, generation.kv
        assert job is not None
        self._store.touch(kv)
        kv.restore(generation.token_ids)
        sequence = [*generation.token_ids, *generation.drafted]
        wanted = sequence if job.request.window else sequence[:-1]
        lacking = len(wanted) - kv.computed_tokens
        rows = 1 if job.request.window else 0
        prefill = max(0, lacking - rows)
        chunk = min(prefill, chunk_left)
        taken = lacking if chunk == prefill else chunk
        stop = kv.computed_tokens + taken
        if taken <= 0 or not self._store.reserve(kv, stop, admitted):
            return None
        kv.check_writable(kv.computed_tokens, stop)
        return Segment(
            wanted[kv.computed_tokens : stop], kv.computed_tokens, kv.blocks, rows if taken == lacking else 0
        )

    def _advance(self, works: Sequence[tuple[_Generation, Segment]]) -> None:
        """Run the pass; draw the next token of every block whose last token was in it."""
        drawing = [generation for generation, segment in works if segment.logit_rows]
        want_hidden = any(g.job is not None and g.job.request.want_hidden for g in drawing)
        result = self._model.forward([segment for _, segment in works], want_hidden=want_hidden)
        for generation, segment in works:
            kv = generation.kv
            kv.computed_tokens = segment.start + len(segment.token_ids)
            if not generation.drafted:
                # The last committed token's position stays private: a repeated request computes it again.
                kv.publish(generation.token_ids, min(kv.computed_tokens, len(generation.token_ids) - 1))
        if drawing:
            self._draw(drawing, result)

    def _draw(self, drawing: Sequence[_Generation], result: PassResult) -> None:
        logits = result.logits[:, : self._vocab_size]
        groups = [RowGroup(g.params, len(g.token_ids) + len(g.drafted), g.counts, (), 1) for g in drawing]
        tokens = choose_tokens(logits, groups).tolist()
        features = to_draft_features(draft_features(logits))
        hidden = None if result.hidden is None else result.hidden.to(torch.float32).cpu().numpy()
        for row, generation in enumerate(drawing):
            job = generation.job
            assert job is not None
            job.token_ids.append(tokens[row])
            job.features.append(features[row])
            if job.request.want_hidden and hidden is not None:
                job.hidden.append(hidden[row])
            generation.drafted.append(tokens[row])
            if generation.counts is not None:
                generation.counts.append([tokens[row]])

    def _complete(self, generation: _Generation, job: _Job) -> bool:
        prefix_done = generation.kv.computed_tokens >= len(generation.token_ids) - 1
        return prefix_done and len(job.token_ids) == job.request.window

    def _finish(self, generation: _Generation, job: _Job) -> Draft:
        generation.job = None
        generation.kv.busy = False
        return Draft(
            generation=job.request.generation,
            round=job.request.round,
            position=len(generation.token_ids),
            token_ids=tuple(job.token_ids),
            features=tuple(job.features),
            hidden=np.stack(job.hidden) if job.hidden else None,
        )
