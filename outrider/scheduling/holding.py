"""Decide how long an idle verifier waits for blocks that are about to arrive, so that they share a pass. Pure.

Without a hold the first block to come back gets a pass of its own and all others wait for it. The two groups then
alternate for as long as they live.
"""

from collections.abc import Sequence

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of

_LONGEST_S = 5e-3  # of any hold
_PASS_SHARE = 0.1  # of the pass that could begin now: the longest hold
_GRACE_SHARE = 0.2  # of the longest hold: how late an expected block may be
_SHORTEST_S = 1e-4  # a shorter hold is not made


def hold_s(
    waiting: Sequence[tuple[VerifyCost, float]], coming_s: Sequence[float], held_s: float, model: CostModel
) -> float:
    """Return how long to wait from now on; 0 begins the pass.

    A hold for ``more`` blocks has three effects, in seconds summed over all blocks. The waiting blocks end later, by
    the hold and by the rows of the others. The others end earlier, by the fixed cost of a pass less the hold. The
    waiting blocks, when they come back after drafting, no longer meet a separate pass of the others. The best hold is
    taken.

    Args:
        waiting: cost of each block that would be in the pass, and the seconds its round took before it arrived.
        coming_s: expected arrivals in seconds from now, rising; without blocks that are already late.
        held_s: how long the blocks were held already.
        model: predicts a pass's time.
    """
    if not waiting:
        return 0.0
    work = work_of(cost for cost, _ in waiting)
    alone_s = model.predict_work_s(work)
    longest_s = min(_LONGEST_S, _PASS_SHARE * alone_s)
    left_s = longest_s - held_s
    alike = VerifyCost(  # costs of coming blocks are unknown: assume the mean
        work.new_tokens // len(waiting), work.cached_tokens // len(waiting)
    )  # costs of coming blocks are unknown: assume the mean
    others, saved_s, until_s = BatchWork(), 0.0, 0.0
    for more, at_s in enumerate(coming_s, start=1):
        if at_s > left_s:
            break
        work, others = work.plus(alike), others.plus(alike)
        together_s, others_s = model.predict_work_s(work), model.predict_work_s(others)
        fixed_s = alone_s + others_s - together_s  # what one pass in place of two saves
        later_s = len(waiting) * (at_s + together_s - alone_s)
        # After ``elapsed_s`` a waiting block is back. A separate pass of the others would keep it for the rest of that
        # pass; a joint pass avoids at most the fixed cost.
        met_s = sum(min(max(0.0, others_s - elapsed_s), fixed_s) for _, elapsed_s in waiting)
        found_s = more * (fixed_s - at_s) + met_s - later_s
        if found_s > saved_s:
            saved_s, until_s = found_s, min(left_s, at_s + _GRACE_SHARE * longest_s)
    return until_s if until_s >= _SHORTEST_S else 0.0
