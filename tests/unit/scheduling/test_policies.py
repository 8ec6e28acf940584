"""What holds of every policy."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy, StopReason
from outrider.scheduling.registry import SCHEDULING
from tests.unit.scheduling.queues import COSTS, GUARDED_COSTS, INFINITY, NOW_S, ROOMY, block, limits, pass_costs, queues

POLICIES = pytest.mark.parametrize("policy", [entry.policy for entry in SCHEDULING.values()], ids=SCHEDULING.keys())


@POLICIES
@given(queue=queues, limits=limits, rng=st.randoms(use_true_random=False))
def test_a_plan_splits_the_queue_within_the_limits(
    policy: SchedulingPolicy, queue: list[PendingVerification], limits: BatchLimits, rng: random.Random
) -> None:
    plan = policy.plan(queue, NOW_S, limits, GUARDED_COSTS)
    assert sorted((*plan.batch, *plan.waiting), key=repr) == sorted(queue, key=repr), "nothing lost or doubled"
    assert bool(plan.batch) is bool(queue), "progress"
    assert (plan.reason is StopReason.QUEUE_EMPTY) is (not plan.waiting)
    assert len(plan.batch) <= limits.max_blocks
    if len(plan.batch) > 1:  # a block that exceeds a limit by itself has to get on too, alone
        assert sum(cost.new_tokens for cost in pass_costs(plan.batch, limits)) <= limits.max_new_tokens
        memory_blocks = sum(p.memory_blocks for p in plan.batch)
        assert memory_blocks <= (INFINITY if limits.max_memory_blocks is None else limits.max_memory_blocks)
    shuffled = rng.sample(queue, len(queue))
    assert policy.plan(shuffled, NOW_S, limits, GUARDED_COSTS) == plan, "the order of the input does not matter"


@POLICIES
def test_an_empty_queue_has_an_empty_batch(policy: SchedulingPolicy) -> None:
    plan = policy.plan([], NOW_S, ROOMY, COSTS)
    assert (plan.batch, plan.waiting, plan.reason) == ((), (), StopReason.QUEUE_EMPTY)


@POLICIES
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (BatchLimits(max_blocks=2, max_new_tokens=99, prefill_chunk_tokens=64), StopReason.MAX_BLOCKS),
        (BatchLimits(max_blocks=9, max_new_tokens=17, prefill_chunk_tokens=64), StopReason.MAX_NEW_TOKENS),
        (
            BatchLimits(max_blocks=9, max_new_tokens=99, prefill_chunk_tokens=64, max_memory_blocks=29),
            StopReason.MEMORY,
        ),
    ],
)
def test_a_limit_that_ends_the_batch_is_named(
    policy: SchedulingPolicy, limits: BatchLimits, reason: StopReason
) -> None:
    queue = [block(name, memory_blocks=10) for name in "abc"]
    plan = policy.plan(queue, NOW_S, limits, COSTS)
    assert ([p.generation for p in plan.batch], plan.reason) == (["a", "b"], reason)


@POLICIES
def test_ties_are_broken_by_arrival_then_generation_then_round(policy: SchedulingPolicy) -> None:
    queue = [block("b"), block("a", round=1), block("a"), block("c", waited_s=0.1)]
    plan = policy.plan(queue, NOW_S, BatchLimits(3, 4096, 512), COSTS)
    assert [(p.generation, p.round) for p in plan.batch] == [("c", 0), ("a", 0), ("a", 1)]
