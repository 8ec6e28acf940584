"""WISP's scheduler (algorithm 1) for comparison, as printed and made fair.

A block is critical from its latest start time on: its deadline less its time alone and a guard time (eq. 17). Critical
blocks come first, earliest deadline first, then the others by falling utility, committed tokens per second of
verification (eq. 16). The first block that breaks the memory or the deadline of one in the batch (eq. 14, 15) ends it.

As printed, it dispatches nothing when the most urgent block can no longer be in time, now or ever after (an erratum).
``Wisp`` dispatches that block alone instead, and follows the paper in all else.

``Wisp(fair=True)`` corrects two more properties of the printed algorithm. A doomed block is best effort: it does not
come first and does not cut a batch short. The utility of a block divides by the seconds that it *adds*: divided by its
time alone, constant part included, a cheap block would be worth no more than an expensive one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.cost import CostModel
from outrider.scheduling.batch_builder import BatchBuilder, guarded_s
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    BatchPlan,
    PendingVerification,
    Promised,
    StopReason,
)
from outrider.scheduling.waiting_arrays import waiting_arrays

_LEAST_S = 1e-9  # a block that adds nothing has a finite utility


@dataclass(frozen=True, slots=True)
class Wisp:
    """Algorithm 1, which always dispatches something.

    Attributes:
        guard_s: delta of eq. 17; None takes the cost model's guard time of each block.
        fair: whether doomed blocks are best effort and utilities marginal.
    """

    guard_s: float | None = None
    fair: bool = False

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,  # noqa: ARG002 (the policy interface; the paper knows the queue only)
    ) -> BatchPlan:
        """Return algorithm 1's batch; the first block of its order alone where that is empty."""
        if not pending:
            return BatchPlan((), (), StopReason.QUEUE_EMPTY)
        waiting = waiting_arrays(pending, limits)
        alone_s = cost_model.predict_works_s(waiting.works)
        needed_s = guarded_s(alone_s, cost_model) if self.guard_s is None else alone_s + self.guard_s
        slack_s = waiting.deadline_at_s - now_s
        paid_s = alone_s
        if self.fair:
            constant_s = float(cost_model.predict_works_s(np.zeros((1, 3)))[0])
            paid_s = np.maximum(alone_s - constant_s, _LEAST_S)
            slack_s = np.where(slack_s < alone_s, np.inf, slack_s)  # doomed
        critical = slack_s <= needed_s
        order = np.lexsort((np.where(critical, slack_s, -waiting.expected_tokens / paid_s), ~critical))
        batch = BatchBuilder(waiting, slack_s, limits, cost_model, keep_guard=False)
        batch.admit(order, stop_at_first=True)
        if not len(batch):
            batch.force(int(order[0]))
        return batch.plan()
