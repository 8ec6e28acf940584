"""WISP's scheduler (algorithm 1) for comparison, made to get on, and with single changes.

A block is critical from its latest start time on: its deadline less its time alone and a guard time (eq. 17). Critical
blocks come first, earliest deadline first, then the others by falling utility, committed tokens per second of
verification (eq. 16). The first block that breaks the memory or the deadline of one in the batch (eq. 14, 15) ends it.

As printed, it dispatches nothing when the most urgent block can no longer be in time, now or ever after (an erratum).
``Doomed`` has what may be done with such a block; the default changes least: it keeps the paper's order.

With ``marginal``, the utility of a block divides by the seconds that it *adds*: divided by its time alone, constant
part included, a cheap block is worth no more than an expensive one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from math import inf
from operator import attrgetter

import numpy as np

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.filling import by_arrival, fill
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    BatchPlan,
    PendingVerification,
    Promised,
    QueueOnly,
    StopReason,
)

_READ = ("deadline_at_s", "expected_tokens", "cost.new_tokens", "cost.cached_tokens", "prefill_tokens")
_read = attrgetter(*_READ)
_LEAST_S = 1e-9  # a block that adds nothing has a finite utility


class Doomed(StrEnum):
    """What happens with a block that would be late even alone."""

    BINDS_NOBODY = "binds_nobody"  # it keeps its place in the order; its deadline does not cut the batch
    ALONE = "alone"  # it keeps its place in the order, and goes alone: its deadline allows nobody beside it
    LAST = "last"  # it is best effort: ordered by utility, and its deadline does not cut the batch


@dataclass(frozen=True, slots=True)
class Wisp(QueueOnly):
    """Algorithm 1, which always dispatches something."""

    guard_s: float | None = None  # delta of eq. 17; None takes the cost model's guard time of each block
    doomed: Doomed = Doomed.BINDS_NOBODY
    marginal: bool = False  # whether utilities are per second that a block adds

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,  # noqa: ARG002 (the policy interface; the paper knows the queue only)
    ) -> BatchPlan:
        """Return algorithm 1's batch; the first block of its order belongs to it whatever it costs."""
        if not pending:
            return BatchPlan((), (), StopReason.QUEUE_EMPTY)
        arrived = by_arrival(pending)
        # Arrays: 1,000 blocks are ordered in half the time that a loop takes.
        read = np.fromiter(chain.from_iterable(map(_read, arrived)), np.float64, len(arrived) * len(_READ))
        deadline_at_s, expected_tokens, new, cached, prefix = read.reshape(-1, len(_READ)).T
        chunk = limits.prefill_chunk_tokens
        new = np.where(prefix > 0.0, np.where(prefix > chunk, chunk, new), np.minimum(new, chunk))
        alone_s = cost_model.predict_works_s(np.stack((new, (new + cached) * new, cached), axis=1))
        needed_s = alone_s + (cost_model.guard_s(alone_s) if self.guard_s is None else self.guard_s)
        slack_s, paid_s = deadline_at_s - now_s, alone_s
        most_s = np.where(slack_s < alone_s, -inf if self.doomed is Doomed.ALONE else inf, slack_s)
        if self.doomed is Doomed.LAST:
            slack_s = most_s
        if self.marginal:
            paid_s = np.maximum(alone_s - cost_model.predict_work_s(BatchWork()), _LEAST_S)
        critical = slack_s <= needed_s
        order = np.lexsort((np.where(critical, slack_s, -expected_tokens / paid_s), ~critical))
        blocks = [arrived[index] for index in order.tolist()]
        return fill(arrived, blocks, limits, cost_model, most_s[order].tolist(), stop_at_first=True)
