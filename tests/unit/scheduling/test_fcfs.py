"""First come, first served: order, limits, and that nothing is lost or overtaken."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduling.cost_model import DEFAULT_COST_MODEL, LinearCostModel, VerifyCost
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


def test_the_cost_model_is_wisp_equation_19() -> None:
    model = LinearCostModel(2.0, 0.5, 0.25, 10.0)
    batch = [VerifyCost(3, 100), VerifyCost(1, 0)]
    assert model.predict_s(batch) == 2.0 * 4 + 0.5 * (103 * 3 + 1 * 1) + 0.25 * 100 + 10.0


def test_predictions_follow_what_is_measured_at_each_number_of_positions() -> None:
    model, one, ten = LinearCostModel(1.0, 0.0, 0.0, 0.0), [VerifyCost(1, 0)], [VerifyCost(4, 0), VerifyCost(6, 9)]
    model = model.corrected(ten, 30.0)
    assert model.predict_s(ten) == 30.0, "the first measurement stands alone"
    assert model.predict_s(one) == 3.0, "what was never measured follows the nearest that was"
    model = model.corrected(one, 1.0)
    assert (model.predict_s(one), model.predict_s(ten)) == pytest.approx((1.0, 30.0))
    assert model.predict_s([VerifyCost(3, 0)]) == pytest.approx(3.0), "nearest by ratio"
    assert model.predict_s([VerifyCost(4, 0)]) == 12.0
    for _ in range(60):
        model = model.corrected(ten, 50.0)
    assert abs(model.predict_s(ten) - 50.0) < 0.01
    assert model.corrected(ten, 0.0) is model


@pytest.mark.parametrize(("blocks", "expected_s"), [(1.0, 6.0), (2.0, 10.0), (2.5, 12.0), (0.5, 4.0)])
def test_a_mean_number_of_blocks_has_a_cost(blocks: float, expected_s: float) -> None:
    assert LinearCostModel(1.0, 0.0, 0.0, 2.0).predict_alike_s(VerifyCost(4, 7), blocks) == expected_s
    whole = [VerifyCost(4, 7)] * 2
    assert LinearCostModel(1.0, 0.1, 0.2, 2.0).predict_alike_s(whole[0], 2.0) == pytest.approx(
        LinearCostModel(1.0, 0.1, 0.2, 2.0).predict_s(whole)
    )


def test_large_batches_are_remembered_by_powers_of_two() -> None:
    model = LinearCostModel(1.0, 0.0, 0.0, 0.0).corrected([VerifyCost(20, 0)], 40.0)
    model = model.corrected([VerifyCost(100, 0)], 400.0)
    assert [model.predict_s([VerifyCost(new, 0)]) for new in (32, 33, 128, 500)] == [64.0, 66.0, 512.0, 2000.0]
