"""How long an idle verifier waits for blocks that are about to come, so that they share a pass. Pure.

Without that, whoever comes first has a pass for itself, and everybody else waits for it: cohorts that alternate for as
long as they live.
"""

from collections.abc import Sequence

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of

_LONGEST_S = 5e-3
_PASS_SHARE = 0.1  # of the pass that could begin
_GRACE_SHARE = 0.2  # of the longest hold, that who is expected may be late
_SHORTEST_S = 1e-4


def hold_s(
    waiting: Sequence[tuple[VerifyCost, float]], coming_s: Sequence[float], held_s: float, model: CostModel
) -> float:
    """How long to wait from now on; 0: the pass begins.

    Held for so many more blocks, those who wait are done later by the hold and by the rows of the others. These are
    done earlier by what a pass costs beside its blocks, less the hold; and who waits now meets the pass of the others
    when it comes back, as far as that is longer than it is away. Seconds of all blocks are added up.

    Args:
        waiting: cost of each block that would be in the pass, and the seconds its round took before it came.
        coming_s: when others are expected, from now on, rising; who is late is not in it.
        held_s: that they were held already.
        model: of a pass's time.
    """
    if not waiting:
        return 0.0
    work = work_of(cost for cost, _ in waiting)
    alone_s = model.predict_work_s(work)
    longest_s = min(_LONGEST_S, _PASS_SHARE * alone_s)
    left_s = longest_s - held_s
    alike = VerifyCost(work.new_tokens // len(waiting), work.cached_tokens // len(waiting))
    others, saved_s, until_s = BatchWork(), 0.0, 0.0
    for more, at_s in enumerate(coming_s, start=1):
        if at_s > left_s:
            break
        work, others = work.plus(alike), others.plus(alike)
        together_s, others_s = model.predict_work_s(work), model.predict_work_s(others)
        fixed_s = alone_s + others_s - together_s
        later_s = len(waiting) * (at_s + together_s - alone_s)
        met_s = sum(min(max(0.0, others_s - before_s), fixed_s) for _, before_s in waiting)
        found_s = more * (fixed_s - at_s) + met_s - later_s
        if found_s > saved_s:
            saved_s, until_s = found_s, min(left_s, at_s + _GRACE_SHARE * longest_s)
    return until_s if until_s >= _SHORTEST_S else 0.0
