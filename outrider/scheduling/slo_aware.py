"""Schedule by SLO: earliest deadline first, in batches whose length follows from the promised load.

All blocks are in one order. A block's deadline follows from its response's ledger; a first token has its own. Blocks
without a deadline, of best effort and of doomed responses, are due ``best_effort_s`` after they arrived: behind what is
urgent, but never left for ever. ``due`` changes the due times of prompts and best effort where they would delay
promised rounds.

While more is promised than can be kept (``Promised.least_load`` above 1) some responses must be late, and by deadline
alone all would be a little late. So a response that stays more than ``forgiven_s`` behind even with this block is
served as best effort, until it has caught up or all promises can be kept again. First tokens are then best effort too:
each response begun takes time from those already running.

Blocks enter in that order while the limits and ``batch_length`` allow. A block that does not fit is skipped. The first
of all is always taken, such as a chunk of a long prompt. Deadlines order blocks and never cut a batch: a block served a
little late costs one response that little, lost throughput costs all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.batch_length import batch_length_s, best_effort_length_s
from outrider.scheduling.due import best_effort_due_s, best_effort_wait_s, first_tokens_due
from outrider.scheduling.filling import by_arrival, fill, work_alone
from outrider.scheduling.ledger import wide_cap_s
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    BatchPlan,
    PendingVerification,
    Promised,
    StopReason,
)

# a cold block gives way to nobody from this time before it and the cold blocks due before it would be too late
_URGENT_S = 0.5


@dataclass(frozen=True, slots=True)
class SloAware:
    # a doomed response's block is due this long after it arrived; best effort no earlier (``due``)
    best_effort_s: float = 3.0
    longest_s: float = 1.0  # upper bound of the target length, and the length of a batch of best effort alone
    forgiven_s: float = 0.5  # lateness above which a response is best effort while more is promised than can be kept
    # share of ``wide_cap_s`` by which a block whose KV was evicted gives way to resident ones, unless it is urgent;
    # while KV is short first tokens do, too
    evicted_share: float = 0.75

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,
    ) -> BatchPlan:
        if not pending:
            return BatchPlan((), (), StopReason.QUEUE_EMPTY)
        over = promised.least_load > 1.0
        # A deadline includes the block's tokens: a block past it leaves its response behind even when it commits.
        since_s = now_s - self.forgiven_s if over else -inf
        arrived = by_arrival(pending)
        constant_s = cost_model.predict_work_s(BatchWork())
        best_effort = [block for block in arrived if block.tokens_per_s == 0.0]
        wait_s = best_effort_wait_s(work_alone(best_effort, limits), self.best_effort_s, constant_s, cost_model)
        firsts = () if over else [block for block in arrived if block.first and block.deadline_at_s < inf]
        first_due = first_tokens_due(firsts, now_s, constant_s, limits, cost_model, promised)
        computed_s = _computed_s(arrived, constant_s, limits.prefill_chunk_tokens, cost_model)
        due = list[float]()
        for block in arrived:
            if since_s <= block.deadline_at_s < inf and not (over and block.first):
                due_at_s = first_due[id(block)] if block.first else block.deadline_at_s
                if block.prefill_tokens and (promised.kv_is_short or not block.first):
                    due_at_s = max(due_at_s, self._cold_due_at_s(block, now_s, computed_s[id(block)]))
                due.append(due_at_s)
            elif block.tokens_per_s == 0.0:
                due.append(best_effort_due_s(block.arrived_at_s, now_s, self.best_effort_s, wait_s))
            else:
                due.append(block.arrived_at_s + self.best_effort_s)
        # The sort is stable: of equal due times the first to arrive.
        order = [arrived[index] for index in sorted(range(len(arrived)), key=due.__getitem__)]
        # The first block may be longer than the target by itself; others may then fill its length.
        first_s = cost_model.predict_work_s(work_alone(order[:1], limits))
        length_s = self._length_s(promised, constant_s, has_best_effort=bool(best_effort))
        return fill(arrived, order, limits, cost_model, length_s=max(length_s, first_s))

    def _length_s(self, promised: Promised, constant_s: float, *, has_best_effort: bool) -> float:
        length_s = batch_length_s(promised, constant_s, self.longest_s)
        # Only real best effort lengthens batches. If doomed responses did, more responses would become doomed.
        return best_effort_length_s(length_s, promised, self.longest_s) if has_best_effort else length_s

    def _cold_due_at_s(self, block: PendingVerification, now_s: float, computed_s: float) -> float:
        """Return when a promised block is due whose KV takes others' memory: it waits until it is urgent.

        By deadline alone each round of a response would evict another's KV, and be evicted before its next one. So
        resident responses get several rounds, up to their slack cap, for each time that KV is computed. A response
        that has not begun waits best: it has no KV, and no tokens come late.
        """
        due_at_s = block.deadline_at_s
        if due_at_s > now_s + computed_s + _URGENT_S:
            return due_at_s + self.evicted_share * wide_cap_s(block.tokens_per_s)
        return due_at_s


def _computed_s(
    blocks: Sequence[PendingVerification], constant_s: float, chunk: int, cost_model: CostModel
) -> dict[int, float]:
    """Return by ``id`` how long each cold block with a deadline takes if computed by deadline, a chunk a pass."""
    cold = [block for block in blocks if block.prefill_tokens and block.deadline_at_s < inf]
    found, tokens, added_s = dict[int, float](), 0, 0.0
    for block in sorted(cold, key=lambda block: block.deadline_at_s):
        prefix, old = block.prefill_tokens, block.cost.cached_tokens
        size = min(prefix, chunk)
        before = old + (prefix - size) // 2  # of a chunk in the middle of the prefix
        middle_s = cost_model.predict_work_s(BatchWork(size, (size + before) * size, before)) - constant_s
        tokens, added_s = tokens + prefix, added_s + prefix / size * max(0.0, middle_s)
        found[id(block)] = ceil(tokens / chunk) * constant_s + added_s
    return found
