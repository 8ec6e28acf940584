"""Drafter engine on torch: drafts for many generations in batched passes over a paged KV pool, layer by layer.

All started blocks advance together. In each ``step``, one forward pass, a cold block computes a chunk of its prefix and
a warm one draws its next layer: the next token of a chain, or all nodes of one depth of a tree. Blocks join and leave
between steps, so no block waits for a longer window.

A node's KV takes the slot after those of earlier nodes. Once the verdict is known, the accepted path's KV is moved to
consecutive slots and is used for the next block. Leaves are never computed. In a dynamic tree the computed nodes are
those that got children, whether they are sent or not.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, compress
from typing import Any

from torch import Tensor

from outrider.contracts.drafting import DraftRequest, DraftTerms, NeedsRow
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage, OpenGeneration
from outrider.drafting.growing import GrowingTree
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.stopping import Stops
from outrider.drafting.stops import StopDecision
from outrider.engines.drafter.base import BaseDrafter, check_fits, check_grows
from outrider.engines.drafter.batch import HeadRows, launch_batch
from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.engines.drafter.pass_plan import DraftPassPlan, DraftWork
from outrider.engines.drafter.tree import DraftTree, shape_that_fits
from outrider.engines.forward_model import PassResult
from outrider.engines.kv.store import KvStore
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.served import draft_model
from outrider.models.drafter_model import FrequentHead
from outrider.models.loading import LoadedModel
from outrider.protocols.fixed_point import fixed_point_probs
from outrider.sampling.choosing import TokenColumns
from outrider.sampling.device_tensors import Readback, index_tensor
from outrider.verification.correction import draw_correction


class TorchDrafter(BaseDrafter[DraftedGeneration]):
    """``DrafterEngine`` for every protocol.

    In addition to KV it keeps the fixed-point rows of a DSSD block until the next block: 8 bytes * vocabulary for each
    token of the block.
    """

    def __init__(
        self,
        drafter: LoadedModel,
        limits: EngineLimits,
        stops: Stops | None = None,
        on_verdict: OnVerdict | None = None,
    ) -> None:
        """Take over the draft model and allocate its KV pool; without ``stops``, chains are never stopped.

        ``on_verdict`` is called with the verdict on each chain and the features of its rows; it must return at once and
        never raise. Until the verdict rows are kept: per token 4 bytes * the tokens that the model proposes, or
        8 * vocabulary.
        """
        super().__init__(stops, on_verdict)
        total_blocks = limits.total_blocks(kv_bytes_per_token(drafter.model))
        self._limits = limits
        self._vocab_size = drafter.vocab_size
        self._columns = _proposed_alone(drafter.model, drafter.vocab_size)
        self._store = KvStore(total_blocks, limits.block_tokens)
        self._model = draft_model(drafter.model, total_blocks, limits.block_tokens)
        self.max_context_tokens = min(drafter.max_context_tokens, self._store.capacity_tokens)

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        check_fits(len(request.prompt_ids) + len(request.output_ids), self.max_context_tokens)
        kv = self._store.open(request.generation, request.cache_salt)
        self._generations[request.generation] = DraftedGeneration(
            request, terms, kv, self._vocab_size, self._recalibration.copy()
        )

    def submit(self, request: DraftRequest) -> None:
        """Start a block; see ``DrafterEngine.submit``. Answers that need no pass come with the next ``step``."""
        check_grows(request.plan)
        if (taken_up := self._taken_up(request)) is not None:
            generation, moves = taken_up
            if moves:
                self._model.move(moves)
            self._start(generation, request)

    def _step(self, started: Sequence[DraftedGeneration]) -> None:
        plan = DraftPassPlan(self._store, self._limits.prefill_chunk_tokens)
        for generation in started:
            assert generation.job is not None
            plan.add(generation, generation.job)
        if plan.works:
            self._advance(plan.works)
        for generation in started:
            self._answer_if_complete(generation)

    def _start_again(self, generation: DraftedGeneration, job: DraftingJob) -> None:
        again = DraftingJob(job.request, job.position, correcting=job.correcting, correction=job.correction)
        generation.tree, generation.job = DraftTree(), again
        if again.correcting:
            self._take_up(generation)
        else:
            self._plan(generation, again)

    def close(self, generation: GenerationId) -> None:
        self._generations.pop(generation, None)
        self._store.close(generation, keep_cache=True)

    def usage(self) -> KvUsage:
        return self._store.usage()

    def _start(self, generation: DraftedGeneration, request: DraftRequest) -> None:
        job = DraftingJob(request, len(generation.token_ids))
        generation.job = job
        kept = generation.rows.get(generation.row_key)
        if request.correction is None:
            generation.rows.clear()
            self._plan(generation, job)
        elif kept is not None:
            self._correct(generation, job, kept)
        elif len(generation.token_ids) > self.max_context_tokens:
            # Beyond the context the device cannot compute its own row, so the correction is not drawn: an empty draft.
            self._answer(generation, job)
        else:
            job.correcting = True
            self._take_up(generation)

    def _correct(self, generation: DraftedGeneration, job: DraftingJob, row: IntRow) -> None:
        """Draw the correction from the row after the committed tokens, then draft after it."""
        request, position = job.request, len(generation.token_ids)
        assert request.correction is not None
        job.correcting = False
        generation.rows = {generation.row_key: row}  # kept, as the same round may be requested again
        probs = fixed_point_probs(row, generation.terms.wire)
        token_id = draw_correction(request.correction, probs, generation.params.seed, position)
        if token_id is None:
            self._ready_answers.append(NeedsRow(request.generation, request.round))
            self._release(generation)
            return
        job.correction = token_id
        generation.commit_correction(token_id)
        if token_id in generation.terms.end_ids or position >= generation.terms.last_position:
            self._answer(generation, job)
        else:
            self._plan(generation, job)

    def _plan(self, generation: DraftedGeneration, job: DraftingJob) -> None:
        """Set the block's shape. Where the context is nearly full a smaller block is drafted."""
        room = self.max_context_tokens - len(generation.token_ids)
        if room <= 0:
            # The context is full: an empty block, and no KV that could never be computed.
            self._answer(generation, job)
            return
        slots = self._store.capacity_tokens - len(generation.token_ids)
        plan = job.request.plan
        job.shape = shape_that_fits(plan, room, slots)
        if plan.rows:
            job.growing = GrowingTree(plan.rows, job.request.price or DraftPrice())
        elif not job.is_tree:
            self._plan_chain(generation, job)
        self._take_up(generation)

    def _take_up(self, generation: DraftedGeneration) -> None:
        """Begin computing. The last committed token is computed again: its logits are the first row."""
        generation.kv.rollback(len(generation.token_ids) - 1)
        self._publish(generation)
        generation.kv.busy = True

    def _advance(self, works: Sequence[DraftWork]) -> None:
        """Run the pass, and draw the next layer of every block whose last layer was in it."""
        drawing = [work for work in works if work.segment.logit_rows]
        want_hidden = any(work.job.request.want_hidden for work in drawing)
        result = self._model.forward([work.segment for work in works], want_hidden=want_hidden)
        for work in works:
            work.generation.kv.computed_tokens = work.segment.stop
            self._publish(work.generation)
        if drawing:
            self._draw(drawing, result)

    def _draw(self, drawing: Sequence[DraftWork], result: PassResult) -> None:
        width = self._vocab_size if self._columns is None else len(self._columns.token_ids)
        head_rows = HeadRows(result.logits[:, :width], self._columns)
        readback = Readback()
        drawn = launch_batch([(work.generation, work.job) for work in drawing], head_rows, readback)
        firsts = accumulate((work.segment.logit_rows for work in drawing), initial=0)
        wanted = [work.job.draws_chain and work.job.request.want_hidden for work in drawing]
        states = _launch_hidden(result.hidden, list(compress(firsts, wanted)), readback)
        readback.read()
        layers = drawn()
        for work, layer, state in zip(compress(drawing, wanted), compress(layers, wanted), states(), strict=True):
            if layer.rows:
                work.job.hidden.append(state)
        for work, layer in zip(drawing, layers, strict=True):
            if work.job.correcting:
                assert layer.rows[0].numerators is not None
                self._correct(work.generation, work.job, layer.rows[0].numerators)
                continue
            if work.job.growing is not None:
                work.generation.grow_best(work.job, layer.children)
            elif layer.step is not StopDecision.STOP:
                work.generation.grow(work.job, layer.rows)
            if layer.step is not StopDecision.DRAW:
                work.job.stop()

    def _publish(self, generation: DraftedGeneration) -> None:
        # The last committed token's position stays private: a repeated request computes it again.
        kv = generation.kv
        kv.publish(generation.token_ids, min(kv.computed_tokens, len(generation.token_ids) - 1))

    def _release(self, generation: DraftedGeneration) -> None:
        super()._release(generation)
        generation.kv.busy = False


def _proposed_alone(model: Any, vocab_size: int) -> TokenColumns | None:
    """Let a model that proposes some tokens only return their logits alone; return those tokens, None for all."""
    head = model.get_output_embeddings()
    if not isinstance(head, FrequentHead):
        return None
    model.set_output_embeddings(head.rows)
    return TokenColumns(head.token_ids[head.token_ids < vocab_size], vocab_size)


def _launch_hidden(hidden: Tensor | None, rows: Sequence[int], readback: Readback) -> Callable[[], Sequence[FloatRow]]:
    """Ask for the hidden states of rows from which chains draw their next tokens."""
    if not rows:
        return tuple
    assert hidden is not None, "a pass gives the hidden states that are wanted"
    fetched = readback.add(hidden[index_tensor(rows, hidden.device)].float())
    return lambda: list(fetched())
