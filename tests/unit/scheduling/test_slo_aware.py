"""Promises kept: who comes first, how long batches are, and that nobody waits for ever."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import VerifyCost
from outrider.scheduling.batch_length import batch_length_s, best_effort_length_s
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, PendingVerification, Promised, StopReason
from outrider.scheduling.slo_aware import SloAware
from tests.unit.scheduling.queues import (
    COSTS,
    GUARDED_COSTS,
    INFINITY,
    NOW_S,
    ROOMY,
    block,
    limits,
    pass_costs,
    queues,
    serve,
)

CONSTANT_S = COSTS.predict_s([])


def names(blocks: Sequence[PendingVerification]) -> str:
    return "".join(p.generation for p in blocks)


def is_owed(pending: PendingVerification, load: float) -> bool:
    in_time = not pending.first and pending.deadline_at_s >= NOW_S - 0.5
    return pending.deadline_at_s < INFINITY and (load <= 1.0 or in_time)


def due_at_s(
    queue: Sequence[PendingVerification], limits: BatchLimits, load: float
) -> dict[PendingVerification, float]:
    """As the policy's description has it."""
    alone_s = [took_s([p], limits) - CONSTANT_S for p in queue if p.tokens_per_s == 0.0]
    wait_s = max(3.0, sum(alone_s) / 0.05)
    due = dict[PendingVerification, float]()
    for pending in queue:
        if not is_owed(pending, load):
            due[pending] = pending.arrived_at_s + 3.0
            if pending.tokens_per_s == 0.0:
                due[pending] = min(max(due[pending], NOW_S + 1.0), pending.arrived_at_s + wait_s)
        elif not pending.first:
            due[pending] = pending.deadline_at_s
    prompts = list[PendingVerification]()
    for pending in sorted((p for p in queue if p not in due), key=lambda p: (p.deadline_at_s, *by_arrival(p))):
        prompts.append(pending)
        computed_s = COSTS.predict_s(pass_costs(prompts, limits)) - CONSTANT_S
        could_s = NOW_S + min(computed_s / max(0.1, 1.0 - load), 1.0)
        due[pending] = max(pending.deadline_at_s, min(could_s, pending.deadline_at_s + 2.0))
    return due


def by_arrival(pending: PendingVerification) -> tuple[float, str, int]:
    return pending.arrived_at_s, pending.generation, pending.round


def took_s(blocks: Sequence[PendingVerification], limits: BatchLimits = ROOMY) -> float:
    return COSTS.predict_s(pass_costs(blocks, limits))


possible_loads = st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0])
loads = st.one_of(possible_loads, st.just(1.7))


@given(queues, limits, loads)
def test_a_batch_is_in_one_order_and_of_its_length(
    queue: list[PendingVerification], limits: BatchLimits, load: float
) -> None:
    plan = SloAware().plan(queue, NOW_S, limits, COSTS, Promised(load, least_load=load))
    due_at = due_at_s(queue, limits, load)
    due = [due_at[p] for p in plan.batch]
    assert due == pytest.approx(sorted(due), abs=1e-9)
    if not queue:
        return
    assert due[0] == pytest.approx(min(due_at.values()), abs=1e-9), "the first of all goes"
    longest_s = batch_length_s(Promised(load, least_load=load), CONSTANT_S, 1.0)
    if any(p.tokens_per_s == 0.0 for p in queue):
        longest_s = 1.0  # nobody is promised anything who is not here
    assert took_s(plan.batch, limits) <= max(longest_s, took_s(plan.batch[:1], limits)) + 1e-6


@given(queues, limits, possible_loads, st.floats(0.0, 100.0))
def test_what_time_it_is_does_not_matter(
    queue: list[PendingVerification], limits: BatchLimits, load: float, later_s: float
) -> None:
    """While there is time for all, deadlines order and never cut: a queue that is late is served as one in time."""
    queue = [replace(p, first=False) for p in queue if p.tokens_per_s]
    plans = [SloAware().plan(queue, NOW_S + by_s, limits, GUARDED_COSTS, Promised(load)) for by_s in (0.0, later_s)]
    assert plans[0] == plans[1]


def test_classes_first_tokens_and_best_effort_are_in_one_order() -> None:
    queue = [
        block("a", slack_s=2.0),
        block("b", slack_s=-1.0),
        block("c", slack_s=1.0, cost=VerifyCost(400, 0)),  # a first token
        block("d", waited_s=1.5),  # best effort, due in 1.5 s
        block("e", waited_s=0.5),
        block("f", waited_s=6.0),
    ]
    plan = SloAware().plan(queue, NOW_S, ROOMY, COSTS, Promised(1.0))
    assert (names(plan.batch), plan.reason) == ("fbcdae", StopReason.QUEUE_EMPTY)
    later = SloAware(best_effort_s=9.0).plan(queue, NOW_S, ROOMY, COSTS, Promised(1.0))
    assert names(later.batch) == "bcafde"


def test_a_block_to_be_computed_again_gives_way_until_it_is_urgent() -> None:
    """So a resident response gets several rounds for each time that KV is computed; first tokens, if it is short."""
    evicted: dict[str, Any] = {"cost": VerifyCost(46, 460), "prefill_tokens": 40}
    queue = [
        block("a", slack_s=2.0, **evicted),  # due 0.75 x 12 s later, as 48 tokens at 4 tokens/s are 12 s
        block("b", slack_s=10.9),
        block("c", slack_s=11.1),
        block("d", slack_s=0.4, **evicted),
        block("e", slack_s=2.5, first=True, **evicted),
    ]
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS, Promised(1.0)).batch) == "debac"
    assert names(SloAware(evicted_share=0.0).plan(queue, NOW_S, ROOMY, COSTS, Promised(1.0)).batch) == "daebc"
    short = Promised(1.0, kv_is_short=True)
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS, short).batch) == "dbace"
    urgent = [block("e", slack_s=0.4, first=True, **evicted), block("b", slack_s=0.5)]
    assert names(SloAware().plan(urgent, NOW_S, ROOMY, COSTS, short).batch) == "eb"


def test_an_evicted_block_is_urgent_as_early_as_computing_it_takes() -> None:
    """4,000 positions in chunks of 64 take 63 passes."""
    small = BatchLimits(max_blocks=256, max_new_tokens=4096, prefill_chunk_tokens=64)
    evicted: dict[str, Any] = {"cost": VerifyCost(4006, 0), "prefill_tokens": 4000}
    chunks_s = [COSTS.predict_s([VerifyCost(min(64, 4000 - at), at)]) for at in range(0, 4000, 64)]
    alone_s = sum(chunks_s)
    assert 1.5 < alone_s < 3.0
    resident, policy = block("r", slack_s=0.5 + 2.1 * alone_s), SloAware()
    for slack_s, order in ((0.5 + 0.98 * alone_s, "er"), (0.5 + 1.02 * alone_s, "re")):
        queue = [block("e", slack_s=slack_s, **evicted), resident]
        assert names(policy.plan(queue, NOW_S, small, COSTS, Promised(1.0)).batch)[:1] == order[0]


def test_where_not_all_can_be_kept_who_owes_most_makes_room_for_who_owes_little() -> None:
    queue = [block("a", slack_s=-0.51), block("b", slack_s=-0.49), block("c", slack_s=2.5), block("d", waited_s=0.4)]
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS, Promised(9.0, least_load=1.0)).batch) == "abcd"
    over = Promised(1.01, least_load=1.01)
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS, over).batch) == "bcda"
    assert names(SloAware(forgiven_s=0.52).plan(queue, NOW_S, ROOMY, COSTS, over).batch) == "abcd"


def test_prompts_have_the_time_that_promises_leave() -> None:
    """By deadline alone both prompts, of 25 ms each, would come first and keep rounds waiting that are due soon."""
    prompts = [
        block(name, slack_s=slack, cost=VerifyCost(500, 0), first=True)
        for name, slack in zip("pq", (0.0, 0.01), strict=True)
    ]
    queue = [*prompts, block("a", slack_s=0.06), block("b", slack_s=0.1), block("c", slack_s=0.3)]
    policy = SloAware()
    for load, order in ((0.0, "pqabc"), (0.5, "pabqc"), (0.8, "abpqc"), (5.0, "abpcq")):
        plan = policy.plan(queue, NOW_S, ROOMY, COSTS, Promised(load))
        assert names(plan.batch) == order[: len(plan.batch)], load


def test_no_prompt_is_put_off_for_ever() -> None:
    """It is due two seconds behind its deadline whatever is promised."""
    old, new = (
        block(name, slack_s=slack_s, cost=VerifyCost(500, 0), first=True)
        for name, slack_s in (("old", -2.5), ("new", -1.5))
    )
    queue = [old, new, block("on", slack_s=0.1)]
    assert names(SloAware().plan(queue, NOW_S, ROOMY, COSTS, Promised(0.9)).batch) == "oldonnew"


def test_much_best_effort_gives_way_to_who_would_be_late() -> None:
    """Fifty of them that all have waited for long do not make promises late, nor wait for ever."""
    policy = SloAware()
    crowd = [block(f"{index:02}", waited_s=4.0 - 0.01 * index, cost=VerifyCost(64, 500)) for index in range(50)]
    near, rich = block("near", slack_s=0.9), block("rich", slack_s=1.1)
    order = policy.plan([*crowd, near, rich], NOW_S, ROOMY, COSTS, Promised(0.5, 0.4)).batch
    assert order[0] is near
    assert order[1] is crowd[0], "before who has time to spare"
    alone_s = took_s(crowd[:1]) - CONSTANT_S
    sure = block("sure", waited_s=51 * alone_s / 0.05, cost=VerifyCost(64, 500))
    assert policy.plan([*crowd, near, rich, sure], NOW_S, ROOMY, COSTS, Promised(0.5, 0.4)).batch[0] is sure


def test_where_not_all_can_be_kept_nobody_is_begun_before_who_waits_as_long() -> None:
    queue = [block("new", slack_s=0.2, waited_s=0.8, first=True), block("on", slack_s=1.0), block("owes", slack_s=-2.0)]
    policy = SloAware()
    assert names(policy.plan(queue, NOW_S, ROOMY, COSTS, Promised(1.0, least_load=1.0)).batch) == "owesnewon"
    over = Promised(1.01, least_load=1.01)
    assert names(policy.plan(queue, NOW_S, ROOMY, COSTS, over).batch) == "onnewowes", "by arrival behind who is in time"


def test_where_not_all_can_be_kept_a_batch_may_be_twenty_constants_long() -> None:
    assert batch_length_s(Promised(1.5, 0.2, least_load=1.0), CONSTANT_S, 1.0) == pytest.approx(10.0 * CONSTANT_S)
    assert batch_length_s(Promised(1.5, 0.2, least_load=1.01), CONSTANT_S, 1.0) == pytest.approx(20.0 * CONSTANT_S)
    assert batch_length_s(Promised(1.5, 8.0, least_load=1.01), CONSTANT_S, 1.0) == pytest.approx(1.0), "longer anyhow"


def test_a_block_that_does_not_fit_holds_nobody_back() -> None:
    tight = BatchLimits(max_blocks=9, max_new_tokens=4096, prefill_chunk_tokens=512, max_memory_blocks=10)
    queue = [
        block(name, slack_s=slack, memory_blocks=size)
        for name, slack, size in (("a", 0.1, 5), ("b", 0.2, 6), ("c", 0.3, 5))
    ]
    plan = SloAware().plan(queue, NOW_S, tight, COSTS)
    assert (names(plan.batch), plan.reason) == ("ac", StopReason.MEMORY)


@pytest.mark.parametrize(
    ("load", "round_s", "expected_s"),
    [
        (0.0, INFINITY, 10.0 * CONSTANT_S),
        (0.3, INFINITY, 10.0 * CONSTANT_S),
        (0.5, INFINITY, 7.5 * CONSTANT_S),
        (0.7, INFINITY, 7.0 * CONSTANT_S),
        (0.9, INFINITY, 35.0 * CONSTANT_S),
        (0.96, INFINITY, 1.0),
        (0.99, INFINITY, 1.0),
        (1.0, INFINITY, 1.0),
        (3.0, INFINITY, 1.0),
        (0.95, 0.8, 0.28),
        (3.0, 0.8, 0.28),
        (0.5, 0.8, 7.5 * CONSTANT_S),
        (0.9, 0.2, 10.0 * CONSTANT_S),
    ],
)
def test_the_length_follows_from_the_promised_load(load: float, round_s: float, expected_s: float) -> None:
    promised = Promised(load, round_s)
    assert batch_length_s(promised, CONSTANT_S, 1.0) == pytest.approx(expected_s)
    crowd = [block(f"{index:03}", slack_s=0.01 * index) for index in range(400)]
    plan = SloAware().plan(crowd, NOW_S, replace(ROOMY, max_blocks=999), COSTS, promised)
    assert expected_s - took_s(crowd[:1]) + CONSTANT_S < took_s(plan.batch) <= expected_s + 1e-6
    assert plan.reason is StopReason.LENGTH


@given(st.floats(0.0, 2.0), st.floats(1e-3, 0.1))
def test_the_load_can_be_served_in_batches_of_that_length(load: float, constant_s: float) -> None:
    """If it can in the longest: four sevenths of what load and reserve leave is theirs."""
    length_s = batch_length_s(Promised(load), constant_s, 1.0)
    assert 2.0 * constant_s <= length_s <= max(1.0, 10.0 * constant_s)
    if load + 2.0 * constant_s <= 0.95:
        assert load + constant_s / length_s <= 0.95 - (0.95 - load) * 3.0 / 7.0 + 1e-9


@pytest.mark.parametrize(("round_s", "expected_s"), [(INFINITY, 1.0), (8.0, 1.0), (1.6, 0.4), (0.1, 10.0 * CONSTANT_S)])
def test_best_effort_makes_batches_longer_as_far_as_promised_rounds_need_not_mind(
    round_s: float, expected_s: float
) -> None:
    assert best_effort_length_s(10.0 * CONSTANT_S, Promised(0.0, round_s), 1.0) == pytest.approx(expected_s)
    crowd = [block(f"{index:03}", waited_s=0.0001 * (400 - index)) for index in range(400)]
    plan = SloAware().plan(crowd, NOW_S, replace(ROOMY, max_blocks=999), COSTS, Promised(0.0, round_s))
    assert expected_s - took_s(crowd[:1]) + CONSTANT_S < took_s(plan.batch) <= expected_s + 1e-6


@pytest.mark.parametrize("crowd", [40, 400])
def test_who_owes_too_much_makes_no_batch_longer(crowd: int) -> None:
    """Longer batches would make others owe as much, and theirs longer still."""
    doomed = [block(f"{index:03}", waited_s=1.0, tokens_per_s=4.0) for index in range(crowd)]
    plan = SloAware().plan(doomed, NOW_S, replace(ROOMY, max_blocks=999), COSTS, Promised(0.0, 8.0))
    assert took_s(plan.batch) <= 10.0 * CONSTANT_S + 1e-6
    with_best_effort = [*doomed, block("free")]
    longer = SloAware().plan(with_best_effort, NOW_S, replace(ROOMY, max_blocks=999), COSTS, Promised(0.0, 8.0))
    assert len(longer.batch) > len(plan.batch)


def test_a_prompt_longer_than_batches_are_to_be_goes_when_it_is_first() -> None:
    prompt = block("x", slack_s=0.2, cost=VerifyCost(2000, 0))
    wide = BatchLimits(max_blocks=256, max_new_tokens=4096, prefill_chunk_tokens=4096)
    before = block("a", slack_s=0.1)
    plan = SloAware().plan([prompt, before], NOW_S, wide, COSTS)
    assert (names(plan.batch), names(plan.waiting)) == ("a", "x")
    plan = SloAware().plan([prompt, block("b", slack_s=0.3)], NOW_S, wide, COSTS)
    assert (names(plan.batch), plan.reason) == ("x", StopReason.LENGTH)


@pytest.mark.parametrize("promised", [40, 160])
def test_nobody_waits_for_ever(promised: int) -> None:
    """Even where twice as much is promised as can be kept, and best effort competes with it."""
    served = serve(SloAware(), [8.0, 6.0] * (promised // 2) + [0.0, 2.0] * 5, 25.0)
    assert served.longest_wait_s < 9.0


def test_who_fell_behind_is_served_again() -> None:
    """Overloaded, doomed responses still get some of it: no one is left behind for good."""
    served = serve(SloAware(), [2.0, 4.0, 6.0, 8.0] * 45, 25.0)
    speeds = [device.tokens / served.ended_at_s / device.ledger.tokens_per_s for device in served.devices]
    assert min(speeds) > 0.03


def test_overload_costs_some_their_promise_and_not_all() -> None:
    speeds = [2.0, 4.0, 6.0, 8.0] * 60
    ours, fcfs = (serve(policy, speeds, 30.0).at_their_speed for policy in (SloAware(), Fcfs()))
    assert ours >= max(fcfs, 0.4 * len(speeds))


def test_mixed_classes_keep_their_speed_where_first_come_first_served_does_not() -> None:
    speeds = [2.0, 4.0, 6.0, 8.0] * 32
    ours, fcfs = (serve(policy, speeds, 20.0).at_their_speed for policy in (SloAware(), Fcfs()))
    assert ours >= 0.95 * len(speeds)
    assert fcfs <= 0.85 * len(speeds)


@pytest.mark.parametrize("loads", [(90,), (105, 110, 115)])
def test_in_one_class_it_is_no_worse_than_first_come_first_served(loads: tuple[int, ...]) -> None:
    """Full load, where short batches would cost all of them their speed; several such loads, as each has its luck."""
    ours, fcfs = ([serve(policy, [8.0] * devices, 15.0) for devices in loads] for policy in (SloAware(), Fcfs()))
    assert sum(one.at_their_speed for one in ours) >= sum(one.at_their_speed for one in fcfs) - 0.05 * sum(loads)
    assert sum(one.tokens for one in ours) >= 0.92 * sum(one.tokens for one in fcfs)


def test_users_who_ask_for_more_than_they_are_promised_get_as_much_as_from_first_come_first_served() -> None:
    """A small promised load and a full verifier: batches of two constants got 0.64 of it, of five 0.94."""
    ours, fcfs = (serve(policy, [1.0] * 90, 15.0) for policy in (SloAware(), Fcfs()))
    assert ours.tokens >= 0.97 * fcfs.tokens


def test_a_service_without_promises_is_as_fast_as_first_come_first_served() -> None:
    ours, fcfs = (serve(policy, [0.0] * 150, 15.0) for policy in (SloAware(), Fcfs()))
    assert ours.tokens >= 0.99 * fcfs.tokens
