"""Fill a batch for short queues: the decision of ``BatchBuilder``, made one block at a time without arrays.

Arrays cost some hundred microseconds however little is in them; a block here costs two or three.
"""

from collections.abc import Sequence
from operator import attrgetter

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason

SCALAR_LIMIT = 64  # blocks; arrays are faster above
_ROUNDING_S = 1e-9  # tolerance for rounding, as in batch_builder
_by_arrival = attrgetter("arrived_at_s", "generation", "round")


def by_arrival(pending: Sequence[PendingVerification]) -> list[PendingVerification]:
    """Sort by arrival, then by generation and round."""
    return sorted(pending, key=_by_arrival)


def work_alone(block: PendingVerification, limits: BatchLimits) -> BatchWork:
    """Return the work of a pass with this block alone."""
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
    """Take the first block in ``order`` whatever it costs, then each that fits. A block that does not fit is skipped.

    ``order`` is by precedence; ``arrived`` has the same blocks by arrival, the order of ``BatchPlan.waiting``.
    """
    chunk = limits.prefill_chunk_tokens
    most_memory = float("inf") if limits.max_memory_blocks is None else limits.max_memory_blocks
    most_s, most_new, predict_s = length_s + _ROUNDING_S, limits.max_new_tokens, cost_model.predict_work_s
    batch = list[PendingVerification]()
    work, memory, used = BatchWork(), 0, 0
    refusal: StopReason | None = None
    for block in order:
        if batch and len(batch) >= limits.max_blocks:
            refusal = refusal or StopReason.MAX_BLOCKS
            break
        prefix, old, own = block.prefix_tokens, block.cost.cached_tokens, block.cost.new_tokens
        if prefix or own > chunk:
            own = _computed(block, chunk - used, chunk)
        # WISP eq. 18: interactions are total * new positions; KV is read only by a block that computes
        more = BatchWork(work[0] + own, work[1] + (own + old) * own, work[2] + (old if own else 0))
        needed = memory + block.memory_blocks
        if batch:
            found: StopReason | None = None
            if more[0] > most_new or not own:  # ``not own``: no chunk is left for its prefix
                found = StopReason.MAX_NEW_TOKENS
            elif needed > most_memory:
                found = StopReason.MEMORY
            elif predict_s(more) > most_s:
                found = StopReason.LENGTH
            if found is not None:
                refusal = refusal or found
                continue
        batch.append(block)
        # the whole prefix, like ``BatchBuilder``: a block behind a cut prefix gets no chunk
        work, memory, used = more, needed, used + prefix
    if len(batch) == len(arrived):
        return BatchPlan(tuple(batch), (), StopReason.QUEUE_EMPTY)
    members = {id(block) for block in batch}
    rest = tuple(block for block in arrived if id(block) not in members)
    return BatchPlan(tuple(batch), rest, refusal or StopReason.QUEUE_EMPTY)


def _computed(block: PendingVerification, chunk_left: int, chunk: int) -> int:
    """Return the positions of a block that a pass computes, as in ``waiting_arrays``."""
    new, prefix = block.cost.new_tokens, block.prefix_tokens
    if not prefix:
        return min(new, chunk)
    counted = min(max(chunk_left, 0), prefix)
    return new if counted == prefix else counted
