"""First come, first served: order, limits, and that nothing is lost or overtaken."""

import random

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import DEFAULT_COST_MODEL, VerifyCost
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, PendingVerification, StopReason

pendings = st.lists(
    st.builds(
        PendingVerification,
        generation=st.text("abcd", min_size=1, max_size=3),
        round=st.integers(0, 3),
        arrived_at_s=st.sampled_from([0.0, 1.0, 2.0]),
        deadline_at_s=st.just(float("inf")),
        expected_tokens=st.just(1.0),
        cost=st.builds(VerifyCost, new_tokens=st.integers(1, 900), cached_tokens=st.integers(0, 900)),
    ),
    max_size=20,
    unique_by=lambda p: (p.generation, p.round),
)
limits = st.builds(
    BatchLimits,
    max_blocks=st.integers(1, 6),
    max_new_tokens=st.integers(1, 600),
    prefill_chunk_tokens=st.integers(1, 128),
)


@given(pendings, limits, st.randoms(use_true_random=False))
def test_properties(pending: list[PendingVerification], limits: BatchLimits, rng: random.Random) -> None:
    plan = Fcfs().plan(pending, 3.0, limits, DEFAULT_COST_MODEL)
    assert sorted((*plan.batch, *plan.waiting), key=repr) == sorted(pending, key=repr), "nothing lost or doubled"
    assert bool(plan.batch) is bool(pending), "progress"
    assert len(plan.batch) <= limits.max_blocks
    tokens = [min(p.cost.new_tokens, limits.prefill_chunk_tokens) for p in plan.batch]
    assert len(plan.batch) <= 1 or sum(tokens) <= limits.max_new_tokens
    if plan.batch and plan.waiting:
        assert max(p.arrived_at_s for p in plan.batch) <= min(p.arrived_at_s for p in plan.waiting), "order of arrival"
    assert (plan.reason is StopReason.QUEUE_EMPTY) is (not plan.waiting)
    shuffled = rng.sample(pending, len(pending))
    assert Fcfs().plan(shuffled, 3.0, limits, DEFAULT_COST_MODEL) == plan, "the order of the input does not matter"
