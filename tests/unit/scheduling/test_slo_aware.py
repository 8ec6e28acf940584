"""Promises kept: who comes first, who is never made late, and that nobody waits for ever."""

from collections.abc import Sequence

import pytest
from hypothesis import given

from outrider.contracts.cost import VerifyCost
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, PendingVerification, StopReason
from outrider.scheduling.slo_aware import SloAware
from tests.unit.scheduling.queues import (
    COSTS,
    GUARDED_COSTS,
    NOW_S,
    ROOMY,
    block,
    limits,
    pass_costs,
    queues,
    serve,
)


def needed_s(blocks: Sequence[PendingVerification], limits: BatchLimits) -> float:
    """What a batch of these takes, guard time included."""
    predicted_s = GUARDED_COSTS.predict_s(pass_costs(blocks, limits))
    return predicted_s + GUARDED_COSTS.guard_s(predicted_s)


def slack_s(pending: PendingVerification) -> float:
    return pending.deadline_at_s - NOW_S + 1e-9


def is_live(pending: PendingVerification, limits: BatchLimits) -> bool:
    return needed_s([pending], limits) <= slack_s(pending) < float("inf")


def speed(blocks: Sequence[PendingVerification]) -> float:
    return sum(p.tokens_per_s for p in blocks)


def names(blocks: Sequence[PendingVerification]) -> str:
    return "".join(p.generation for p in blocks)


def target_s(queue: Sequence[PendingVerification]) -> float:
    """The longest a target length can be for this queue: half of the shortest time given, or four constants."""
    given_s = [p.deadline_at_s - p.arrived_at_s for p in queue]
    return max(min([1.0, *(0.5 * given for given in given_s if given > 0.0)]), 4.0 * GUARDED_COSTS.predict_s([]))


def urgent_s(queue: Sequence[PendingVerification], limits: BatchLimits) -> float:
    """What all live blocks take together that would be late in the batch after one of the target length."""
    length_s = target_s(queue)
    urgent = [p for p in queue if is_live(p, limits) and slack_s(p) < length_s + needed_s([p], limits) + 1e-6]
    return GUARDED_COSTS.predict_s(pass_costs(urgent, limits))


@given(queues, limits)
def test_no_admission_makes_a_live_member_late(queue: list[PendingVerification], limits: BatchLimits) -> None:
    """Unless there are more urgent blocks than a batch of the target length holds."""
    plan = SloAware(starving_s=1e9).plan(queue, NOW_S, limits, GUARDED_COSTS)
    if any(is_live(p, limits) and needed_s(plan.batch, limits) > slack_s(p) for p in plan.batch):
        assert urgent_s(queue, limits) > target_s(queue) - 1e-6
        assert (
            GUARDED_COSTS.predict_s(pass_costs(plan.batch, limits))
            <= max([target_s(queue), *(GUARDED_COSTS.predict_s(pass_costs([p], limits)) for p in queue)]) + 1e-6
        )


@given(queues, limits)
def test_who_owes_nothing_or_is_doomed_takes_no_place_that_a_live_block_needs(
    queue: list[PendingVerification], limits: BatchLimits
) -> None:
    plan = SloAware(starving_s=1e9).plan(queue, NOW_S, limits, GUARDED_COSTS)
    members = [p for p in plan.batch if is_live(p, limits)]
    if len(members) == len(plan.batch):
        return
    for waiting in (p for p in plan.waiting if is_live(p, limits)):
        in_time_later = GUARDED_COSTS.predict_s(pass_costs(plan.batch, limits)) + needed_s(
            [waiting], limits
        ) <= slack_s(waiting)
        together = [*members, waiting]
        memory_blocks = limits.max_memory_blocks
        fits = (
            len(together) <= limits.max_blocks
            and sum(cost.new_tokens for cost in pass_costs(together, limits)) <= limits.max_new_tokens
            and (memory_blocks is None or sum(p.memory_blocks for p in together) <= memory_blocks)
            and needed_s(together, limits) <= min(map(slack_s, together))
            and needed_s(together, limits) <= needed_s(plan.batch, limits)
        )
        assert in_time_later or not fits


def test_the_earliest_deadline_comes_first_and_a_batch_ends_before_it() -> None:
    two_s = COSTS.predict_s([VerifyCost(6, 500)] * 2)
    queue = [block("a", slack_s=0.9), block("b", slack_s=two_s, tokens_per_s=8.0), block("c", slack_s=0.8)]
    plan = SloAware().plan(queue, NOW_S, ROOMY, COSTS)
    assert (names(plan.batch), names(plan.waiting), plan.reason) == ("bc", "a", StopReason.DEADLINE)


def test_a_doomed_block_outranks_those_with_time_and_not_those_without() -> None:
    three = BatchLimits(max_blocks=3, max_new_tokens=4096, prefill_chunk_tokens=512)
    queue = [
        *(block(name, waited_s=0.3, slack_s=0.03) for name in "ab"),
        block("x", slack_s=-0.5),
        *(block(n, slack_s=3.0) for n in "cd"),
    ]
    assert names(SloAware().plan(queue, NOW_S, three, COSTS).batch) == "abx"
    queue = [*(block(name, waited_s=0.3, slack_s=0.03) for name in "abe"), block("x", slack_s=-0.5)]
    assert names(SloAware().plan(queue, NOW_S, three, COSTS).batch) == "abe"


def test_blocks_without_a_deadline_age_and_are_otherwise_taken_by_utility() -> None:
    queue = [
        block("a", expected_tokens=1.0),
        block("b", expected_tokens=3.0),
        block("c", expected_tokens=3.0, cost=VerifyCost(6, 3000)),
        block("d", waited_s=0.6, expected_tokens=1.0),
        block("e", waited_s=0.7, expected_tokens=1.0),
    ]
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS).batch) == "edbac"
    assert names(SloAware(aging_s=0.65).plan(queue, NOW_S, ROOMY, COSTS).batch) == "ebdac"


def test_one_starving_block_is_first_in_a_batch() -> None:
    one = BatchLimits(max_blocks=1, max_new_tokens=4096, prefill_chunk_tokens=512)
    queue = [block("a", waited_s=0.3, slack_s=0.03), block("b", waited_s=10.1), block("c", waited_s=10.2)]
    assert names(SloAware().plan(queue, NOW_S, one, COSTS).batch) == "c"
    assert names(SloAware(starving_s=11.0).plan(queue, NOW_S, one, COSTS).batch) == "a"
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS).batch)[:2] == "ca", "only one goes before a live block"


def test_a_block_that_does_not_fit_holds_nobody_back() -> None:
    tight = BatchLimits(max_blocks=9, max_new_tokens=4096, prefill_chunk_tokens=512, max_memory_blocks=10)
    queue = [
        block(name, slack_s=slack, memory_blocks=size)
        for name, slack, size in (("a", 0.1, 5), ("b", 0.2, 6), ("c", 0.3, 5))
    ]
    plan = SloAware().plan(queue, NOW_S, tight, COSTS)
    assert (names(plan.batch), plan.reason) == ("ac", StopReason.MEMORY)


def test_the_shortest_time_given_sets_the_target_and_constants_bound_it() -> None:
    """Blocks that nobody needs soon: the batch ends where one that comes next would have to wait too long."""

    def batch_s(given_s: float, count: int = 70, **more: object) -> float:
        queue = [block(f"{i:02}", slack_s=given_s - 0.01, waited_s=0.01) for i in range(count)]
        plan = SloAware().plan([*queue, block("x", **more)], NOW_S, ROOMY, COSTS)  # type: ignore[arg-type]
        assert plan.reason is (StopReason.LENGTH if plan.waiting else StopReason.QUEUE_EMPTY)
        return COSTS.predict_s(pass_costs(plan.batch, ROOMY))

    assert 0.09 < batch_s(0.2) <= 0.1
    assert 0.11 < batch_s(0.9, slack_s=0.23, waited_s=0.01) <= 0.12, "one with less time shortens it"
    assert 0.055 < batch_s(0.9, slack_s=0.08, waited_s=0.01) <= 4.0 * COSTS.predict_s([]), "not without end"
    assert batch_s(0.9) == COSTS.predict_s([VerifyCost(6, 500)] * 71), "no reason to wait"


def test_deadlines_stop_cutting_batches_short_where_more_is_urgent_than_a_batch_holds() -> None:
    tight = block("x", slack_s=0.0185, waited_s=0.25)  # time for itself alone
    crowd = [block(f"{i:02}", slack_s=0.13, waited_s=0.15) for i in range(60)]
    few = SloAware().plan([tight, *crowd[:20]], NOW_S, ROOMY, COSTS)
    assert (names(few.batch), few.reason) == ("x", StopReason.DEADLINE)
    many = SloAware().plan([tight, *crowd], NOW_S, ROOMY, COSTS)
    assert (many.batch[0].generation, many.reason) == ("x", StopReason.LENGTH)
    assert 0.12 < COSTS.predict_s(pass_costs(many.batch, ROOMY)) <= 0.135


def test_a_chunk_longer_than_batches_are_to_be_waits_for_a_lull_or_until_it_starves() -> None:
    crowd = [block(f"{i:02}", slack_s=0.1, waited_s=0.1) for i in range(30)]

    def prompt(waited_s: float) -> PendingVerification:
        return block("x", waited_s=waited_s, cost=VerifyCost(900, 0), tokens_per_s=4.0)

    wide = BatchLimits(max_blocks=256, max_new_tokens=4096, prefill_chunk_tokens=4096)
    assert "x" in names(SloAware().plan([prompt(0.6)], NOW_S, wide, COSTS).batch)
    assert "x" not in names(SloAware().plan([*crowd, prompt(2.4)], NOW_S, wide, COSTS).batch)
    assert names(SloAware().plan([*crowd, prompt(2.6)], NOW_S, wide, COSTS).batch)[0] == "x"


@pytest.mark.parametrize("promised", [40, 160])
def test_nobody_waits_for_ever(promised: int) -> None:
    """Even where twice as much is promised as can be kept, and best effort competes with it."""
    policy = SloAware(starving_s=3.0)
    served = serve(policy, [8.0, 6.0] * (promised // 2) + [0.0, 2.0] * 5, 25.0)
    assert served.longest_wait_s < 2 * policy.starving_s


def test_who_fell_behind_is_served_again() -> None:
    """Overloaded, late devices still get their share: no one is left behind for good."""
    served = serve(SloAware(), [2.0, 4.0, 6.0, 8.0] * 45, 25.0)
    speeds = [device.tokens / served.ended_at_s / device.ledger.tokens_per_s for device in served.devices]
    assert min(speeds) > 0.3


def test_mixed_classes_keep_their_speed_where_first_come_first_served_does_not() -> None:
    speeds = [2.0, 4.0, 6.0, 8.0] * 32
    ours, fcfs = (serve(policy, speeds, 20.0).at_their_speed for policy in (SloAware(), Fcfs()))
    assert ours >= 0.95 * len(speeds)
    assert fcfs <= 0.85 * len(speeds)


@pytest.mark.parametrize("devices", [90, 110])
def test_in_one_class_it_is_no_worse_than_first_come_first_served(devices: int) -> None:
    """Full load, where short batches would cost all of them their speed."""
    ours, fcfs = (serve(policy, [8.0] * devices, 15.0) for policy in (SloAware(), Fcfs()))
    assert ours.at_their_speed >= fcfs.at_their_speed - 0.05 * devices
    assert ours.tokens >= 0.92 * fcfs.tokens
