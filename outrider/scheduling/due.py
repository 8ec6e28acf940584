"""By when a waiting block is due where its deadline alone does not say so. Pure.

*First tokens.* A prompt takes its time from rounds that are promised as well. By its deadline it would be before them,
though that may be sooner than it can be computed, and a few at once would make everybody late who has been begun. So
prompts have the part of the time that promises leave: one is due once it and those due before it could be computed in
that, but within ``_NEAR_S``, which leaves it before whoever has time to spare, and never more than ``_PUT_OFF_S``
behind its deadline. Where prompts take little, their deadlines are what counts.

*Best effort* has what promises leave over. It gives way to whoever would be late within ``_NEAR_S`` and, once it has
waited for a while, not to those who have more time to spare. However much there is of it, all of it together is sure of
``_FLOOR`` of the time: it goes before everybody once it has waited for as long as all that waits takes in that.
"""

from collections.abc import Iterable

import numpy as np

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.policy import BatchLimits, PendingVerification, Promised
from outrider.scheduling.waiting_arrays import Floats

_NEAR_S = 1.0
_FLOOR = 0.05
_PUT_OFF_S = 2.0
_LEAST_SPARE = 0.1  # of the time is for prompts, whatever is promised


def first_tokens_due(
    blocks: Iterable[PendingVerification],
    now_s: float,
    constant_s: float,
    limits: BatchLimits,
    cost_model: CostModel,
    promised: Promised,
) -> dict[int, float]:
    """When those with a deadline that bring first tokens are due, by ``id``; an empty pass takes ``constant_s``."""
    spare = max(_LEAST_SPARE, 1.0 - promised.load)
    work, due = BatchWork(), dict[int, float]()
    for block in sorted(blocks, key=lambda one: one.deadline_at_s):
        new, cached = block.cost.new_tokens, block.cost.cached_tokens
        new = new if block.prefix_tokens else min(new, limits.prefill_chunk_tokens)
        work = BatchWork(work[0] + new, work[1] + (new + cached) * new, work[2] + cached)
        computed_s = (cost_model.predict_work_s(work) - constant_s) / spare
        could_s = now_s + min(computed_s, _NEAR_S)
        due[id(block)] = max(block.deadline_at_s, min(could_s, block.deadline_at_s + _PUT_OFF_S))
    return due


def best_effort_wait_s(work: BatchWork, least_s: float, constant_s: float, cost_model: CostModel) -> float:
    """After how long it goes before everybody: at least ``least_s``; ``work`` is a pass with all of it that waits."""
    return max(least_s, (cost_model.predict_work_s(work) - constant_s) / _FLOOR)


def best_effort_due_s(arrived_at_s: float, now_s: float, least_s: float, wait_s: float) -> float:
    """When one is due that goes before everybody after ``wait_s``."""
    return min(max(arrived_at_s + least_s, now_s + _NEAR_S), arrived_at_s + wait_s)


def best_effort_due_array(arrived_at_s: Floats, now_s: float, least_s: float, wait_s: float) -> Floats:
    """The same of ``[n]``."""
    due: Floats = np.minimum(np.maximum(arrived_at_s + least_s, now_s + _NEAR_S), arrived_at_s + wait_s)
    return due
