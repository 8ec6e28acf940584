"""The online estimator against machines whose times are known."""

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf, isfinite, nan

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.contracts.cost import DEFAULT_COST_MODEL, LinearCostModel, VerifyCost
from outrider.costs.estimator import OnlineEstimator
from outrider.costs.prior import PROFILED_MACHINE, UNKNOWN_MACHINE

TABLE_12 = LinearCostModel(3.314e-5, 3.45e-8, 4.62e-6, 0.01486)
BATCHES = (
    [VerifyCost(1, 300)],
    [VerifyCost(5, 100)] * 3,
    [VerifyCost(8, 600)] * 8,
    [VerifyCost(3, 40), VerifyCost(9, 500)],
)
Truth = Callable[[Sequence[VerifyCost]], float]


def batch_of(rng: random.Random) -> list[VerifyCost]:
    return [VerifyCost(rng.randint(1, 9), rng.randint(20, 600)) for _ in range(rng.randint(1, 8))]


def times(model: LinearCostModel, factor: float) -> LinearCostModel:
    return LinearCostModel(
        factor * model.seconds_per_token,
        factor * model.seconds_per_interaction,
        factor * model.seconds_per_cached_token,
        factor * model.seconds_per_batch,
    )


def learn(
    estimator: OnlineEstimator, truth: Truth, batches: int, noise: float = 0.0, outliers: float = 0.0, seed: int = 0
) -> OnlineEstimator:
    rng = random.Random(seed)
    for _ in range(batches):
        batch = batch_of(rng)
        factor = 10.0 if rng.random() < outliers else exp(noise * rng.gauss(0.0, 1.0))
        estimator = estimator.observed(batch, factor * truth(batch))
    return estimator


def error(estimator: OnlineEstimator, truth: Truth) -> float:
    """Largest relative error over batches of all sizes."""
    return max(abs(estimator.model.predict_s(batch) / truth(batch) - 1.0) for batch in BATCHES)


@settings(max_examples=25)
@given(
    st.builds(
        LinearCostModel,
        st.floats(1e-6, 1e-2),
        st.floats(0.0, 1e-6),
        st.floats(0.0, 2e-5),
        st.floats(1e-3, 0.5),
    ),
    st.integers(0, 99),
)
@example(LinearCostModel(0.009765625, 0.0, 0.0, 0.03125), 99)  # one batch of a single row in 300
def test_it_converges_to_any_machine_of_equation_19(truth: LinearCostModel, seed: int) -> None:
    assert error(learn(OnlineEstimator(DEFAULT_COST_MODEL), truth.predict_s, 400, seed=seed), truth.predict_s) < 0.03


def test_noise_is_averaged_and_outliers_do_not_wreck_it() -> None:
    noisy = learn(OnlineEstimator(DEFAULT_COST_MODEL), TABLE_12.predict_s, 300, noise=0.1)
    assert error(noisy, TABLE_12.predict_s) < 0.12
    settled = learn(OnlineEstimator(DEFAULT_COST_MODEL), TABLE_12.predict_s, 200, noise=0.02)
    after_one = settled.observed(BATCHES[0], 10.0 * TABLE_12.predict_s(BATCHES[0]))
    moved = [after_one.model.predict_s(batch) / settled.model.predict_s(batch) for batch in BATCHES]
    assert moved[0] < 1.4, "a rare kind of batch, of which ten times as much was measured"
    assert max(moved[1:]) < 1.02
    disturbed = learn(settled, TABLE_12.predict_s, 200, noise=0.05, outliers=0.05, seed=1)
    assert error(disturbed, TABLE_12.predict_s) < 0.12


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0])
def test_an_abrupt_change_is_followed_within_a_few_batches(factor: float) -> None:
    settled = learn(OnlineEstimator(DEFAULT_COST_MODEL), TABLE_12.predict_s, 200, noise=0.03)
    changed = times(TABLE_12, factor).predict_s
    assert error(settled, changed) > 0.4
    assert error(learn(settled, changed, 10, noise=0.03, seed=1), changed) < 0.1


def test_a_slow_drift_is_followed() -> None:
    estimator, rng = learn(OnlineEstimator(DEFAULT_COST_MODEL), TABLE_12.predict_s, 100), random.Random(5)
    worst, factor = 0.0, 1.0
    for _ in range(300):
        factor *= 1.005  # four and a half times as slow in the end
        truth = times(TABLE_12, factor).predict_s
        worst = max(worst, error(estimator, truth))
        batch = batch_of(rng)
        estimator = estimator.observed(batch, truth(batch))
    assert worst < 0.3
    assert error(estimator, truth) < 0.25


def test_the_first_measurement_moves_every_prediction() -> None:
    batch = [VerifyCost(4, 100)]
    estimator = OnlineEstimator(DEFAULT_COST_MODEL).observed(batch, DEFAULT_COST_MODEL.predict_s(batch) / 20.0)
    for other in (*BATCHES, [VerifyCost(900, 0)]):
        assert estimator.model.predict_s(other) == pytest.approx(DEFAULT_COST_MODEL.predict_s(other) / 20.0, rel=0.05)


def test_a_loaded_profile_is_believed_more_than_one_measurement() -> None:
    batch = [VerifyCost(4, 100)]
    doubled = 2.0 * TABLE_12.predict_s(batch)
    trusting = OnlineEstimator(TABLE_12, PROFILED_MACHINE).observed(batch, doubled)
    doubting = OnlineEstimator(TABLE_12, UNKNOWN_MACHINE).observed(batch, doubled)
    assert trusting.model.predict_s(batch) < 1.6 * TABLE_12.predict_s(batch)
    assert doubting.model.predict_s(batch) > 1.9 * TABLE_12.predict_s(batch)
    assert error(learn(trusting, times(TABLE_12, 2.0).predict_s, 10), times(TABLE_12, 2.0).predict_s) < 0.1


def test_rows_that_cost_more_than_their_share_get_an_offset_and_their_neighbours_follow() -> None:
    def truth(batch: Sequence[VerifyCost]) -> float:
        [block] = batch
        return {1: 0.062, 2: 0.105, 4: 0.096, 7: 0.130}[block.new_tokens]

    estimator, rng = OnlineEstimator(DEFAULT_COST_MODEL), random.Random(0)
    for _ in range(120):
        batch = [VerifyCost(rng.choice((1, 2, 4, 7)), 100)]
        estimator = estimator.observed(batch, truth(batch) * exp(0.02 * rng.gauss(0.0, 1.0)))
    predicted = {rows: estimator.model.predict_s([VerifyCost(rows, 100)]) for rows in range(1, 9)}
    for rows in (1, 2, 4, 7):
        assert predicted[rows] == pytest.approx(truth([VerifyCost(rows, 100)]), rel=0.05)
    assert 0.09 < predicted[3] < 0.12, "never measured, between two that were"
    assert 0.09 < predicted[5] < predicted[8] < 0.16


def test_ten_thousand_batches_alike_do_not_wind_it_up() -> None:
    estimator, same = learn(OnlineEstimator(DEFAULT_COST_MODEL), TABLE_12.predict_s, 30), [VerifyCost(4, 100)]
    alone = OnlineEstimator(DEFAULT_COST_MODEL)
    for _ in range(10_000):
        estimator = estimator.observed(same, TABLE_12.predict_s(same))
        alone = alone.observed(same, TABLE_12.predict_s(same))
    assert estimator.model.predict_s(same) == pytest.approx(TABLE_12.predict_s(same), rel=1e-3)
    # Of other sizes nothing is known any more but the prior's proportions.
    speed = TABLE_12.predict_s(same) / DEFAULT_COST_MODEL.predict_s(same)
    for batch in BATCHES:
        assert alone.model.predict_s(batch) == pytest.approx(speed * DEFAULT_COST_MODEL.predict_s(batch), rel=0.05)
        assert estimator.model.predict_s(batch) == pytest.approx(alone.model.predict_s(batch), rel=0.05)
    recovered = learn(estimator, TABLE_12.predict_s, 60, seed=3)
    assert error(recovered, TABLE_12.predict_s) < 0.1


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.lists(st.builds(VerifyCost, st.integers(0, 10**6), st.integers(0, 10**7)), max_size=4),
            st.floats(allow_nan=True, allow_infinity=True),
        ),
        max_size=12,
    )
)
def test_nothing_measured_makes_a_prediction_that_is_none(seen: list[tuple[list[VerifyCost], float]]) -> None:
    estimator = OnlineEstimator(DEFAULT_COST_MODEL)
    for batch, measured_s in seen:
        estimator = estimator.observed(batch, measured_s)
        model = estimator.model
        for asked in (batch, *BATCHES):
            assert isfinite(model.predict_s(asked))
            assert model.predict_s(asked) > 0.0
        assert isfinite(model.relative_guard)
        assert model.relative_guard >= 0.0
        assert min(model.seconds_per_token, model.seconds_per_interaction) >= 0.0
        assert min(model.seconds_per_cached_token, model.seconds_per_batch) >= 0.0


@pytest.mark.parametrize("measured_s", [0.0, -1.0, nan, inf])
def test_what_is_no_measurement_teaches_nothing(measured_s: float) -> None:
    estimator = OnlineEstimator(DEFAULT_COST_MODEL)
    assert estimator.observed([VerifyCost(3, 5)], measured_s) is estimator
    assert estimator.observed([VerifyCost(0, 5)], 1.0) is estimator
    assert estimator.observed([], 1.0) is estimator


def test_the_guard_covers_nine_in_ten_shortfalls() -> None:
    exact = learn(OnlineEstimator(TABLE_12, PROFILED_MACHINE), TABLE_12.predict_s, 100)
    assert exact.model.relative_guard < 0.01
    noisy = learn(OnlineEstimator(TABLE_12, PROFILED_MACHINE), TABLE_12.predict_s, 400, noise=0.1)
    assert 0.07 < noisy.model.relative_guard < 0.25
    rng, late = random.Random(9), 0
    for _ in range(400):
        batch = batch_of(rng)
        measured_s = TABLE_12.predict_s(batch) * exp(0.1 * rng.gauss(0.0, 1.0))
        predicted_s = noisy.model.predict_s(batch)
        late += measured_s > predicted_s + noisy.model.guard_s(predicted_s)
        noisy = noisy.observed(batch, measured_s)
    assert 0.05 < late / 400 < 0.16
    guarded = OnlineEstimator(replace(TABLE_12, relative_guard=0.3)).observed(BATCHES[0], 0.02)
    assert guarded.model.relative_guard == 0.3, "the first few batches leave it"


def test_an_estimator_travels() -> None:
    estimator = learn(OnlineEstimator(DEFAULT_COST_MODEL), TABLE_12.predict_s, 20)
    copy: OnlineEstimator = pickle.loads(pickle.dumps(estimator))
    assert copy.model == estimator.model
    assert copy.observed(BATCHES[1], 0.05).model == estimator.observed(BATCHES[1], 0.05).model


@pytest.mark.parametrize("constant_s", [0.0, 1e-12, 1e3])
def test_any_model_can_be_begun_with(constant_s: float) -> None:
    estimator, batch = OnlineEstimator(LinearCostModel(0.0, 0.0, 0.0, constant_s)), [VerifyCost(3, 40)]
    for _ in range(200):
        estimator = estimator.observed(batch, 0.05)
    assert estimator.model.predict_s(batch) == pytest.approx(0.05, rel=0.1)
