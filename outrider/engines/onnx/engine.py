"""Drafter engine on onnxruntime: chains of token ids, greedy and by the noise shared with the target.

All started blocks advance together, one token a step; those with one new token each are computed in one pass where
their rows are neighbours. Tokens are drawn in numpy, and nothing here needs torch.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from outrider.contracts.chunks import chunk_of
from outrider.contracts.drafting import DraftRequest, DraftTerms
from outrider.contracts.errors import UnsupportedBlockError
from outrider.contracts.exchanged import FloatRow
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage, OpenGeneration
from outrider.drafting.features import DraftFeatures, LazyFeatures
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.stopping import Stops
from outrider.drafting.stops import StopDecision
from outrider.engines.drafter.base import BaseDrafter, check_fits
from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.engines.drafter.tree import DraftTree, shape_that_fits
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.kv_rows import KvRow, KvRows
from outrider.engines.onnx.model import OnnxModel
from outrider.models.identity import ModelIdentity
from outrider.protocols.protocol import DraftRow, DrawnRow
from outrider.protocols.registry import PLAINEST
from outrider.sampling.distributions import Probs
from outrider.sampling.numpy_rows import adjust_row, choose_token, whole_row
from outrider.sampling.row_groups import RowGroup


class OnnxGeneration(DraftedGeneration):
    kv: KvRow  # type: ignore[assignment]  # it has what a chain's bookkeeping uses of a paged sequence


_Work = tuple[OnnxGeneration, Sequence[int], bool]  # its new tokens; whether their last draws a token


class OnnxDrafter(BaseDrafter[OnnxGeneration]):
    """``DrafterEngine`` for chains of token ids; other blocks are an ``UnsupportedBlockError``."""

    def __init__(
        self, model: OnnxModel, limits: EngineLimits, stops: Stops | None = None, on_verdict: OnVerdict | None = None
    ) -> None:
        """As ``TorchDrafter``; KV memory is allocated when it is needed, up to the budget."""
        super().__init__(stops, on_verdict)
        self._model, self._token_ids = model, model.drafter.token_ids
        self._vocab_size = model.drafter.identity.vocab_size
        self._kv = KvRows(model.drafter.kv, limits.kv_budget_bytes, model.drafter.identity.max_context_tokens)
        self.max_context_tokens, self._chunk_tokens = self._kv.most_tokens, limits.prefill_chunk_tokens

    @property
    def identity(self) -> ModelIdentity:
        """Return its model's, with the positions that this engine can hold."""
        return replace(self._model.drafter.identity, max_context_tokens=self.max_context_tokens)

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        check_fits(len(request.prompt_ids) + len(request.output_ids), self.max_context_tokens)
        self.close(request.generation)
        kv: Any = self._kv.open()
        learned = self._recalibration.copy()
        self._generations[request.generation] = OnnxGeneration(request, terms, kv, self._vocab_size, learned)

    def submit(self, request: DraftRequest) -> None:
        """Start a block; see ``DrafterEngine.submit``. Answers that need no pass come with the next ``step``."""
        if refused := refused_of(request):
            raise UnsupportedBlockError(
                f"needs an engine with {refused}, found onnx, which drafts chains of {PLAINEST}"
            )
        if (taken_up := self._taken_up(request)) is not None:
            generation, _ = taken_up  # a chain's KV is in its places
            generation.job = DraftingJob(request, len(generation.token_ids))
            self._plan(generation, generation.job)

    def _step(self, started: Sequence[OnnxGeneration]) -> None:
        self._advance(self._works(started))
        for generation in started:
            self._answer_if_complete(generation)

    def _start_again(self, generation: OnnxGeneration, job: DraftingJob) -> None:
        generation.tree, generation.job = DraftTree(), DraftingJob(job.request, job.position)
        self._plan(generation, generation.job)

    def close(self, generation: GenerationId) -> None:
        if (held := self._generations.pop(generation, None)) is not None:
            self._kv.close(held.kv)

    def usage(self) -> KvUsage:
        return self._kv.usage(len(self._generations))

    def _plan(self, generation: OnnxGeneration, job: DraftingJob) -> None:
        """Set the block's length. Where the context is nearly full a shorter block is drafted."""
        room = self.max_context_tokens - len(generation.token_ids)
        if room <= 0:
            # The context is full: an empty block, and no KV that could never be computed.
            self._answer(generation, job)
            return
        job.shape = shape_that_fits(job.request.plan, room, room)
        self._plan_chain(generation, job)
        generation.kv.rollback(len(generation.token_ids) - 1)  # the last token's logits are the first row

    def _works(self, started: Sequence[OnnxGeneration]) -> list[_Work]:
        """Return what each generation computes in this step, as far as chunk and memory go."""
        left, kept, works = self._chunk_tokens, set[KvRow](), list[_Work]()
        for generation in started:
            job, kv = generation.job, generation.kv
            assert job is not None
            draws = job.wants_row
            sequence = [*generation.token_ids, *generation.tree.token_ids] if draws else generation.token_ids[:-1]
            start, lacking = kv.computed_tokens, len(sequence) - kv.computed_tokens
            taken, counted = chunk_of(lacking, int(draws), left)
            if taken <= 0 or not self._kv.reserve(kv, start + taken, kept):
                continue
            kept.add(kv)
            left -= counted
            works.append((generation, sequence[start : start + taken], draws and start + taken == len(sequence)))
        return works

    def _advance(self, works: Sequence[_Work]) -> None:
        """Run the passes, and draw the next token of every block whose last token was in one."""
        alone = {work[0].kv.index: work for work in works if len(work[1]) == 1}
        for generation, token_ids, draws in works:
            if len(token_ids) > 1:
                logits = self._pass([token_ids], generation.kv.index)
                self._computed(generation, len(token_ids), logits[0] if draws else None)
        for span in self._kv.spans([index for index in alone if index is not None]):
            logits = self._pass([alone[index][1] if index in alone else [0] for index in span], span.start)
            for index, row in zip(span, logits, strict=True):
                if index in alone:
                    self._computed(alone[index][0], 1, row if alone[index][2] else None)

    def _pass(self, token_ids: Sequence[Sequence[int]], first: int | None) -> FloatRow:
        """Compute new tokens of consecutive rows. A row that is only passed by is written behind what is valid."""
        assert first is not None
        rows = [self._kv.at(first + place) for place in range(len(token_ids))]
        lengths = [0 if row is None else row.computed_tokens for row in rows]
        return self._model.forward(token_ids, first, lengths, self._kv)

    def _computed(self, generation: OnnxGeneration, tokens: int, row: FloatRow | None) -> None:
        generation.kv.computed_tokens += tokens
        job = generation.job
        if row is None or job is None:
            return
        group = RowGroup(
            generation.params,
            len(generation.token_ids) + job.depth,
            generation.counts_at(generation.tree.growing[0]),
            (),
            1,
        )
        step = StopDecision.DRAW
        if job.rule.asks:
            features = DraftFeatures(self._probs(row, group))
            job.keep(features)
            job.rule, rule = job.rule.after(features), job.rule
            step = rule.step(features)
        elif job.keeps_features:
            job.keep(self._features(row, group))
        if step is not StopDecision.STOP:
            token_id = choose_token(row, group, self._token_ids, self._vocab_size)
            generation.grow(job, [DrawnRow((token_id,))])
        if step is not StopDecision.DRAW:
            job.stop()

    def _features(self, row: FloatRow, group: RowGroup) -> DraftFeatures:
        """Return what a log may ask of a row that is gone with the next pass."""
        return LazyFeatures(partial(self._probs, row.copy(), group))

    def _probs(self, row: FloatRow, group: RowGroup) -> Probs:
        """Return the distribution that a stop rule decides by, over the columns or the whole vocabulary."""
        whole = whole_row(row, self._token_ids, self._vocab_size) if group.names_tokens else row
        adjusted = adjust_row(whole, group)
        if not np.isfinite(adjusted.max(initial=-np.inf)):  # all tokens that it proposes are excluded
            adjusted = np.zeros_like(adjusted)
        return DraftRow(adjusted).probs


def refused_of(request: DraftRequest) -> str | None:
    """Return what of a block this engine cannot draft; None if it can."""
    plan = request.plan
    if plan.is_tree:
        return "token trees"
    if plan.protocol != PLAINEST:
        return f"the distributions of {plan.protocol}"
    if request.correction is not None:
        return "corrections drawn on devices"
    return "hidden states" if request.want_hidden else None
