"""WISP's scheduler (algorithm 1), as printed, for comparison.

A block is critical from its latest start time on, its deadline less what it takes alone and a guard time (eq. 17).
Critical blocks come first, earliest deadline first, then the others by falling utility, committed tokens per second of
verification (eq. 16); the first that breaks the memory or a member's deadline (eq. 14, 15) ends the batch.

As printed it dispatches nothing when the most urgent block can no longer be in time, now or ever after (an erratum).
``Wisp`` dispatches that block alone instead, and is the paper's in everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.cost import CostModel
from outrider.scheduling.admission import GrowingBatch, guarded_s
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason
from outrider.scheduling.waiting_arrays import waiting_arrays


@dataclass(frozen=True, slots=True)
class Wisp:
    """Algorithm 1, made to get on.

    Attributes:
        guard_s: delta of eq. 17; None takes the cost model's for each block.
    """

    guard_s: float | None = None

    def plan(
        self, pending: Sequence[PendingVerification], now_s: float, limits: BatchLimits, cost_model: CostModel
    ) -> BatchPlan:
        """Algorithm 1's batch; the first block of its order alone where that is empty."""
        if not pending:
            return BatchPlan((), (), StopReason.QUEUE_EMPTY)
        waiting = waiting_arrays(pending, limits)
        alone_s = cost_model.predict_works_s(waiting.works)
        needed_s = guarded_s(alone_s, cost_model) if self.guard_s is None else alone_s + self.guard_s
        slack_s = waiting.deadline_at_s - now_s
        critical = slack_s <= needed_s
        order = np.lexsort((np.where(critical, slack_s, -waiting.expected_tokens / alone_s), ~critical))
        batch = GrowingBatch(waiting, slack_s, limits, cost_model, keep_guard=False)
        batch.admit(order, stop_at_first=True)
        if not len(batch):
            batch.force(int(order[0]))
        return batch.plan()
