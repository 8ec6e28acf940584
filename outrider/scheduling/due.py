"""Compute due times of blocks whose deadline alone would order them wrongly: first tokens and best effort. Pure.

*First tokens.* Prefill takes time from promised rounds. By deadline a prompt would come before them, though its
deadline may be sooner than it can be computed, and a few prompts at once would make every running response late. So
prompts get the share of the time that promises leave: a prompt is due when it and those due before it could be computed
in that share. The due time is at most ``_NEAR_S`` from now, which keeps a prompt ahead of responses with more slack,
and at most ``_PUT_OFF_S`` behind its deadline. Short prompts could be done before their deadline, so that counts.

*Best effort* gets what promises leave. It is due ``_NEAR_S`` from now, or ``least_s`` after it arrived if that is
later: behind every block due within a second. All best effort together is sure of ``_FLOOR`` of the time: a block goes
before everybody once it has waited as long as all waiting best effort takes in that share.
"""

from collections.abc import Iterable

from outrider.contracts.cost import BatchWork, CostModel
from outrider.scheduling.policy import BatchLimits, PendingVerification, Promised

_NEAR_S = 1.0  # a promised block due within this time goes first
_FLOOR = 0.05  # share of the time that best effort is sure of
_PUT_OFF_S = 2.0  # longest delay of a first token behind its deadline
_LEAST_SPARE = 0.1  # share of the time for prompts, however much is promised


def first_tokens_due(
    blocks: Iterable[PendingVerification],
    now_s: float,
    constant_s: float,
    limits: BatchLimits,
    cost_model: CostModel,
    promised: Promised,
) -> dict[int, float]:
    """Return due times by ``id`` for blocks that bring first tokens and have a deadline.

    An empty pass takes ``constant_s``.
    """
    spare = max(_LEAST_SPARE, 1.0 - promised.load)
    work, due = BatchWork(), dict[int, float]()
    for block in sorted(blocks, key=lambda one: one.deadline_at_s):
        new, cached = block.cost.new_tokens, block.cost.cached_tokens
        new = new if block.prefill_tokens else min(new, limits.prefill_chunk_tokens)
        work = BatchWork(work[0] + new, work[1] + (new + cached) * new, work[2] + cached)
        # ``work`` sums this prompt and those due before it; prefill has only the share ``spare`` of the time.
        computed_s = (cost_model.predict_work_s(work) - constant_s) / spare
        could_s = now_s + min(computed_s, _NEAR_S)
        due[id(block)] = max(block.deadline_at_s, min(could_s, block.deadline_at_s + _PUT_OFF_S))
    return due


def best_effort_wait_s(work: BatchWork, least_s: float, constant_s: float, cost_model: CostModel) -> float:
    """Return the wait after which best effort goes before everybody, at least ``least_s``.

    ``work`` is a pass over all best effort that waits.
    """
    return max(least_s, (cost_model.predict_work_s(work) - constant_s) / _FLOOR)


def best_effort_due_s(arrived_at_s: float, now_s: float, least_s: float, wait_s: float) -> float:
    """Return when a best-effort block is due that goes before everybody after ``wait_s``."""
    return min(max(arrived_at_s + least_s, now_s + _NEAR_S), arrived_at_s + wait_s)
