"""Fill a batch with blocks in order of precedence.

A block that does not fit is skipped, so it cannot hold back those behind it. All cold blocks of a pass share one chunk
of prefix positions: a cold block costs what is left of that chunk for it, and does not fit where nothing is left.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from math import inf
from operator import attrgetter

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, StopReason

_ROUNDING_S = 1e-9  # tolerance for rounding
_arrival = attrgetter("arrived_at_s")
_by_arrival = attrgetter("arrived_at_s", "generation", "round")


def by_arrival(pending: Sequence[PendingVerification]) -> list[PendingVerification]:
    """Sort by arrival, then by generation and round."""
    # Equal arrivals are rare, and only they need the longer key, which takes five times as long.
    if len(set(map(_arrival, pending))) == len(pending):
        return sorted(pending, key=_arrival)
    return sorted(pending, key=_by_arrival)


def work_alone(blocks: Iterable[PendingVerification], limits: BatchLimits) -> BatchWork:
    """Return the summed work of blocks that each have a pass's chunk for themselves."""
    chunk, new, interactions, cached = limits.prefill_chunk_tokens, 0, 0, 0
    for block in blocks:
        own, old = block.cost.new_tokens, block.cost.cached_tokens
        if block.prefill_tokens or own > chunk:
            own = _computed(block, chunk, chunk)
        if own:
            new, interactions, cached = new + own, interactions + (own + old) * own, cached + old
    return BatchWork(new, interactions, cached)


def fill(
    arrived: Sequence[PendingVerification],
    order: Sequence[PendingVerification],
    limits: BatchLimits,
    cost_model: CostModel,
    slacks_s: Sequence[float] = (),
    *,
    length_s: float = inf,
    stop_at_first: bool = False,
) -> BatchPlan:
    """Take the first block in ``order`` whatever it costs, then each that fits.

    Args:
        arrived: all blocks by arrival, the order of ``BatchPlan.waiting``.
        order: the same blocks by precedence.
        limits: of one batch.
        cost_model: predicts the batch's time.
        slacks_s: for each of ``order``, the longest time that a batch with it may take; none: no bound.
        length_s: longest time of the batch.
        stop_at_first: whether the first block that does not fit ends the batch.
    """
    batch, refusal = _choose(order, limits, cost_model, slacks_s, length_s, stop_at_first=stop_at_first)
    if len(batch) == len(arrived):
        return BatchPlan(tuple(batch), (), StopReason.QUEUE_EMPTY)
    members = set(map(id, batch))
    rest = tuple([block for block in arrived if id(block) not in members])
    return BatchPlan(tuple(batch), rest, refusal or StopReason.QUEUE_EMPTY)


def _choose(
    order: Sequence[PendingVerification],
    limits: BatchLimits,
    cost_model: CostModel,
    slacks_s: Sequence[float],
    length_s: float,
    *,
    stop_at_first: bool,
) -> tuple[list[PendingVerification], StopReason | None]:
    """Return the blocks that fit, and why the first that does not is refused."""
    chunk, most_new, most_s = limits.prefill_chunk_tokens, limits.max_new_tokens, length_s + _ROUNDING_S
    most_memory = inf if limits.max_memory_blocks is None else limits.max_memory_blocks
    is_timed, least_slack_s = bool(slacks_s) or length_s < inf, slacks_s[0] if slacks_s else inf
    batch, refusal, first = [order[0]], None, order[0]
    (new, interactions, read), memory, used = work_alone(batch, limits), first.memory_blocks, first.prefill_tokens
    for block, slack_s in zip(order[1:], slacks_s[1:] or repeat(inf), strict=False):
        if len(batch) >= limits.max_blocks:
            return batch, refusal or StopReason.MAX_BLOCKS
        prefix, own, old = block.prefill_tokens, block.cost.new_tokens, block.cost.cached_tokens
        if prefix or own > chunk:
            own = _computed(block, chunk - used, chunk)
        # WISP eq. 18: interactions are total * new positions; KV is read only by a block that computes.
        # A plain tuple: a ``BatchWork`` takes three times as long to make.
        work = new + own, interactions + (own + old) * own, read + (old if own else 0)
        taken_s = cost_model.predict_work_s(work) if is_timed else 0.0
        if work[0] > most_new or not own:  # ``not own``: no chunk is left for its prefix
            found = StopReason.MAX_NEW_TOKENS
        elif memory + block.memory_blocks > most_memory:
            found = StopReason.MEMORY
        elif taken_s > slack_s or taken_s > least_slack_s:  # a batch is bound by the least slack (WISP eq. 15)
            found = StopReason.DEADLINE
        elif taken_s > most_s:
            found = StopReason.LENGTH
        else:
            batch.append(block)
            (new, interactions, read), memory = work, memory + block.memory_blocks
            # the whole prefix: a block behind a cut prefix gets no chunk
            least_slack_s, used = min(least_slack_s, slack_s), used + prefix
            continue
        refusal = refusal or found
        if stop_at_first:
            break
    return batch, refusal


def _computed(block: PendingVerification, chunk_left: int, chunk: int) -> int:
    """Return the positions of a block that a pass computes (``contracts.chunks.chunk_of``); 0 without a chunk."""
    new, prefix = block.cost.new_tokens, block.prefill_tokens
    if not prefix:
        return min(new, chunk)
    counted = min(max(chunk_left, 0), prefix)
    return new if counted == prefix else counted
