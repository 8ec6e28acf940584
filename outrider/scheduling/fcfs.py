"""Schedule first come, first served: fill a batch in order of arrival (the papers' SLED baseline)."""

from collections.abc import Sequence

from outrider.contracts.cost import CostModel
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


class Fcfs(QueueOnly):
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
        arrived = by_arrival(pending)
        if _all_fit(pending, limits):
            return BatchPlan(tuple(arrived), (), StopReason.QUEUE_EMPTY)
        return fill(arrived, arrived, limits, cost_model, stop_at_first=True)


def _all_fit(pending: Sequence[PendingVerification], limits: BatchLimits) -> bool:
    """Whether one pass holds all blocks, cold ones in turn at its chunk."""
    chunk, most_memory_blocks = limits.prefill_chunk_tokens, limits.max_memory_blocks
    return (
        len(pending) <= limits.max_blocks
        and sum(min(block.cost.new_tokens, chunk) for block in pending) <= limits.max_new_tokens
        and (most_memory_blocks is None or sum(block.memory_blocks for block in pending) <= most_memory_blocks)
    )
