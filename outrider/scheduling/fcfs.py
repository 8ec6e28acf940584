"""First come, first served: blocks in order of arrival until the batch is full (the papers' SLED baseline)."""

from collections.abc import Sequence

from outrider.scheduling.cost_model import CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason


class Fcfs:
    """Order of arrival, ties by generation id; the order of the input list does not matter."""

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,  # noqa: ARG002 (the policy interface; arrival order needs no clock)
        limits: BatchLimits,
        cost_model: CostModel,  # noqa: ARG002 (the policy interface; arrival order needs no prediction)
    ) -> BatchPlan:
        """Take blocks in order of arrival; the first that does not fit ends the batch, so none is overtaken.

        A cold block counts with the chunk of its prefix that one pass computes.
        """
        ordered = sorted(pending, key=lambda p: (p.arrived_at_s, p.generation, p.round))
        new_tokens = 0
        for index, candidate in enumerate(ordered):
            if index == limits.max_blocks:
                return BatchPlan(tuple(ordered[:index]), tuple(ordered[index:]), StopReason.MAX_BLOCKS)
            new_tokens += min(candidate.cost.new_tokens, limits.prefill_chunk_tokens)
            if index > 0 and new_tokens > limits.max_new_tokens:
                return BatchPlan(tuple(ordered[:index]), tuple(ordered[index:]), StopReason.MAX_NEW_TOKENS)
        return BatchPlan(tuple(ordered), (), StopReason.QUEUE_EMPTY)
