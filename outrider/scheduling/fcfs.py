"""Schedule first come, first served: fill a batch in order of arrival (the papers' SLED baseline)."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from outrider.contracts.cost import CostModel
from outrider.scheduling.batch_builder import BatchBuilder
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    BatchPlan,
    PendingVerification,
    Promised,
    StopReason,
)
from outrider.scheduling.waiting_arrays import waiting_arrays

_by_arrival = attrgetter("arrived_at_s", "generation", "round")


class Fcfs:
    """Order of arrival. The first block that does not fit ends the batch, so no block is overtaken."""

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,  # noqa: ARG002 (the policy interface; arrival order needs no clock)
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,  # noqa: ARG002 (likewise)
    ) -> BatchPlan:
        """Fill the batch in order of arrival up to the first block that does not fit. The oldest is always in it."""
        if not pending:
            return BatchPlan((), (), StopReason.QUEUE_EMPTY)
        if _all_fit(pending, limits):
            return BatchPlan(tuple(sorted(pending, key=_by_arrival)), (), StopReason.QUEUE_EMPTY)
        batch = BatchBuilder(waiting_arrays(pending, limits), np.full(len(pending), np.inf), limits, cost_model)
        batch.force(0)
        batch.admit(np.arange(1, len(pending)), stop_at_first=True)
        return batch.plan()


def _all_fit(pending: Sequence[PendingVerification], limits: BatchLimits) -> bool:
    """Return whether one pass holds all blocks. That is the common case, and needs no arrays."""
    chunk, most_memory_blocks = limits.prefill_chunk_tokens, limits.max_memory_blocks
    return (
        len(pending) <= limits.max_blocks
        and sum(min(block.cost.new_tokens, chunk) for block in pending) <= limits.max_new_tokens
        and (most_memory_blocks is None or sum(block.memory_blocks for block in pending) <= most_memory_blocks)
    )
