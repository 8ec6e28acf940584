"""First come, first served: blocks in order of arrival until the batch is full (the papers' SLED baseline)."""

from collections.abc import Sequence

from outrider.contracts.cost import CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason


class Fcfs:
    """Order of arrival, ties by generation id and round; the order of the input list does not matter."""

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
        most_memory_blocks = float("inf") if limits.max_memory_blocks is None else limits.max_memory_blocks
        new_tokens = memory_blocks = 0
        for index, candidate in enumerate(ordered):
            new_tokens += min(candidate.cost.new_tokens, limits.prefill_chunk_tokens)
            memory_blocks += candidate.memory_blocks
            if index == limits.max_blocks:
                reason = StopReason.MAX_BLOCKS
            elif index > 0 and new_tokens > limits.max_new_tokens:
                reason = StopReason.MAX_NEW_TOKENS
            elif index > 0 and memory_blocks > most_memory_blocks:
                reason = StopReason.MEMORY
            else:
                continue
            return BatchPlan(tuple(ordered[:index]), tuple(ordered[index:]), reason)
        return BatchPlan(tuple(ordered), (), StopReason.QUEUE_EMPTY)
