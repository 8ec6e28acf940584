"""Filling a batch where few wait: what ``GrowingBatch`` does, one after another and without arrays.

Arrays cost some hundred microseconds however little is in them, a block here two or three. The decision is the same.
"""

from collections.abc import Sequence
from operator import attrgetter

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason

FEW = 64  # from about as many on arrays are faster
_ROUNDING_S = 1e-9
_by_arrival = attrgetter("arrived_at_s", "generation", "round")


def by_arrival(pending: Sequence[PendingVerification]) -> list[PendingVerification]:
    """The first to arrive first, then by generation and round."""
    return sorted(pending, key=_by_arrival)


def alone(block: PendingVerification, limits: BatchLimits) -> BatchWork:
    """What one pass computes of a block with nothing else in it."""
    new = _computed(block, limits.prefill_chunk_tokens, limits.prefill_chunk_tokens)
    cached = block.cost.cached_tokens
    return BatchWork(new, (new + cached) * new, cached if new else 0)


def fill(
    arrived: Sequence[PendingVerification],
    order: Sequence[PendingVerification],
    length_s: float,
    limits: BatchLimits,
    cost_model: CostModel,
) -> BatchPlan:
    """The first in ``order`` whatever it takes, then whoever fits; one that does not is passed over.

    Args:
        arrived: all of them by arrival, in which order the rest is returned.
        order: all of them by precedence.
        length_s: the batch may not take longer.
        limits: of a batch.
        cost_model: predicts its time.
    """
    chunk = limits.prefill_chunk_tokens
    most_memory = float("inf") if limits.max_memory_blocks is None else limits.max_memory_blocks
    batch = list[PendingVerification]()
    new = interactions = cached = memory = used = 0
    refusal: StopReason | None = None
    for block in order:
        if batch and len(batch) >= limits.max_blocks:
            refusal = refusal or StopReason.MAX_BLOCKS
            break
        prefix, old = block.prefix_tokens, block.cost.cached_tokens
        own = _computed(block, chunk - used, chunk)
        more = new + own, interactions + (own + old) * own, cached + (old if own else 0)
        if batch:
            found = _refused(more, memory + block.memory_blocks, length_s, limits, most_memory, cost_model)
            if prefix and not own:
                found = StopReason.MAX_NEW_TOKENS
            if found is not None:
                refusal = refusal or found
                continue
        batch.append(block)
        new, interactions, cached = more
        memory, used = memory + block.memory_blocks, used + prefix
    if len(batch) == len(arrived):
        return BatchPlan(tuple(batch), (), StopReason.QUEUE_EMPTY)
    members = {id(block) for block in batch}
    rest = tuple(block for block in arrived if id(block) not in members)
    return BatchPlan(tuple(batch), rest, refusal or StopReason.QUEUE_EMPTY)


def _refused(
    work: tuple[int, int, int],
    memory: int,
    length_s: float,
    limits: BatchLimits,
    most_memory: float,
    cost_model: CostModel,
) -> StopReason | None:
    """Which limit a batch of this work breaks, if any."""
    if work[0] > limits.max_new_tokens:
        return StopReason.MAX_NEW_TOKENS
    if memory > most_memory:
        return StopReason.MEMORY
    if cost_model.predict_work_s(BatchWork(*work)) > length_s + _ROUNDING_S:
        return StopReason.LENGTH
    return None


def _computed(block: PendingVerification, chunk_left: int, chunk: int) -> int:
    """Positions of a block that a pass computes, as ``waiting_arrays`` has it."""
    new, prefix = block.cost.new_tokens, block.prefix_tokens
    if not prefix:
        return min(new, chunk)
    counted = min(max(chunk_left, 0), prefix)
    return new if counted == prefix else counted
