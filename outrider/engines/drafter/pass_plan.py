"""Plan of a drafter's forward pass: what each generation computes in it. Those added first get memory first."""

from dataclasses import dataclass, field

from outrider.contracts.chunks import chunk_of
from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.engines.kv.store import KvStore, SequenceKv
from outrider.engines.segments import Segment


@dataclass(frozen=True, slots=True)
class DraftWork:
    """Contribution of one generation to a pass."""

    generation: DraftedGeneration
    job: DraftingJob
    segment: Segment


@dataclass(slots=True)
class DraftPassPlan:
    store: KvStore
    chunk_left: int  # prefix positions that this pass may still compute
    works: list[DraftWork] = field(default_factory=list)
    admitted: set[SequenceKv] = field(default_factory=set)  # their KV, which later generations must not evict

    def add(self, generation: DraftedGeneration, job: DraftingJob) -> None:
        """Add what a generation computes; nothing if it has nothing to compute, or chunk or memory are used up."""
        segment = self._segment(generation, job)
        if segment is not None:
            self.works.append(DraftWork(generation, job, segment))
            self.admitted.add(generation.kv)
            self.chunk_left -= len(segment.token_ids) - segment.logit_rows

    def _segment(self, generation: DraftedGeneration, job: DraftingJob) -> Segment | None:
        kv, tree = generation.kv, generation.tree
        self.store.touch(kv)
        kv.restore(generation.token_ids)
        # Without a row to draw, only KV is brought up to date; the last token's is computed with the next block.
        sequence = [*generation.token_ids, *tree.token_ids] if job.wants_row else generation.token_ids[:-1]
        rows = len(tree.growing) if job.wants_row else 0
        lacking = len(sequence) - kv.computed_tokens
        # A tree's nodes see each other by one mask, so they are computed together with its last layer.
        taken, _ = chunk_of(lacking, max(rows, len(tree.token_ids)), self.chunk_left)
        start, stop = kv.computed_tokens, kv.computed_tokens + taken
        if taken <= 0 or not self.store.reserve(kv, stop, self.admitted):
            return None
        kv.check_writable(start, stop)
        if taken < lacking:
            return Segment(sequence[start:stop], start, kv.blocks, 0)
        return Segment(sequence[start:stop], start, kv.blocks, rows, tree.parents if tree.branches else ())
