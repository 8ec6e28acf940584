import numpy as np
import pytest

from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, VerifyCost, row_bucket
from outrider.contracts.errors import ParameterError
from outrider.costs.fit_figures import BatchKind, BatchSample, assess, figures, medians_of, noise_floor_mape
from outrider.costs.fitting import FitKind, fit, fit_offsets
from outrider.costs.profiling_plan import Configuration, profiling_plan

TRUTH = LinearCostModel(2.7e-3, 4e-6, 3e-5, 0.05)
PLAN = profiling_plan(256)


def measured(
    model: LinearCostModel, configurations: tuple[Configuration, ...], noise: float = 0.0, seed: int = 0
) -> list[BatchSample]:
    rng = np.random.default_rng(seed)
    return [
        BatchSample(
            one.kind, one.blocks, tuple((model.predict_s(one.blocks) * np.exp(noise * rng.normal(size=3))).tolist())
        )
        for one in configurations
    ]


def with_offsets(offsets_s: dict[int, float]) -> LinearCostModel:
    table = [0.0] * ROW_BUCKETS
    for rows, seconds in offsets_s.items():
        table[row_bucket(rows)] = seconds
    return LinearCostModel(
        TRUTH.seconds_per_token,
        TRUTH.seconds_per_interaction,
        TRUTH.seconds_per_cached_token,
        TRUTH.seconds_per_batch,
        tuple(table),
    )


def test_exact_times_of_equation_19_give_its_coefficients_back() -> None:
    fitted = fit(measured(TRUTH, PLAN.train), measured(TRUTH, PLAN.test), bootstraps=20)
    for kind in (FitKind.ORDINARY, FitKind.RELATIVE):
        report = fitted.reports[kind]
        for name, interval in report.coefficients.items():
            assert interval.value == pytest.approx(getattr(TRUTH, name), rel=1e-6)
            assert interval.low <= interval.high == pytest.approx(interval.low, rel=1e-5)
        assert report.test is not None
        assert report.test.r2 == pytest.approx(1.0)
        assert report.test.mape < 1e-6
        assert report.cross_validation[0] == pytest.approx(1.0)
    assert assess(fitted.model, measured(TRUTH, PLAN.test)).mape < 1e-6, "offsets of nothing stay nothing"


def test_intervals_hold_the_truth_and_narrow_with_the_noise() -> None:
    widths = []
    for noise in (0.02, 0.1):
        samples = measured(TRUTH, PLAN.train, noise, seed=1)
        report = fit(samples, measured(TRUTH, PLAN.test, noise, seed=2), bootstraps=200).reports[FitKind.RELATIVE]
        found = report.coefficients["seconds_per_batch"]
        assert found.low < found.value < found.high
        assert found.low < TRUTH.seconds_per_batch < found.high
        widths.append(found.high - found.low)
    assert widths[0] < widths[1] / 2


def test_row_offsets_are_found_where_equation_19_cannot_bend() -> None:
    truth = with_offsets({1: -0.02, 2: 0.03, 9: 0.02})
    train, test = measured(truth, PLAN.train, 0.01), measured(truth, PLAN.test, 0.01, seed=1)
    fitted = fit(train, test, bootstraps=0)
    plain, bent = fitted.reports[FitKind.RELATIVE], fitted.reports[FitKind.OFFSETS]
    assert plain.test is not None
    assert bent.test is not None
    assert bent.test.mape < plain.test.mape
    assert bent.by_kind[BatchKind.VERIFICATION].mape < 0.5 * plain.by_kind[BatchKind.VERIFICATION].mape
    for rows in (1, 2, 9):
        batch = (VerifyCost(rows, 60),)
        assert fitted.model.predict_s(batch) == pytest.approx(truth.predict_s(batch), rel=0.1)


def test_buckets_without_samples_have_no_offset_and_those_with_one_are_shrunk() -> None:
    truth = with_offsets({3: 0.05})
    samples = [
        BatchSample(
            BatchKind.VERIFICATION, (VerifyCost(new, 10 * new),), (truth.predict_s([VerifyCost(new, 10 * new)]),)
        )
        for new in (1, 2, 3, 4, 8, 12, 16, 100)
    ]
    offsets = fit_offsets(samples).row_offsets_s
    assert 0.0 < offsets[3] < 0.05
    assert [offset for rows, offset in enumerate(offsets[:17]) if rows not in (1, 2, 3, 4, 8, 12, 16)] == [0.0] * 10


def test_coefficients_are_never_negative() -> None:
    falling = [
        BatchSample(BatchKind.COMPUTE_BOUND, (VerifyCost(new, 0),), (1.0 / new,)) for new in (1, 2, 4, 8, 16, 32) * 2
    ]
    model = fit(falling, bootstraps=5).reports[FitKind.RELATIVE].model
    assert min(model.seconds_per_token, model.seconds_per_interaction, model.seconds_per_cached_token) == 0.0
    assert model.seconds_per_batch > 0.0


def test_a_fit_is_the_same_every_time() -> None:
    train, test = measured(TRUTH, PLAN.train, 0.05), measured(TRUTH, PLAN.test, 0.05, seed=1)
    assert fit(train, test, seed=3, bootstraps=10) == fit(train, test, seed=3, bootstraps=10)
    assert fit(train, test, seed=3, bootstraps=10) != fit(train, test, seed=4, bootstraps=10)


def test_the_guard_is_what_nine_in_ten_unseen_batches_stay_below() -> None:
    fitted = fit(measured(TRUTH, PLAN.train, 0.05), bootstraps=0)
    unseen = measured(TRUTH, PLAN.test, 0.1, seed=1)
    model = fitted.guarded(unseen)
    # The sample that sets the guard lies on it, but for the last bits of two ways to add the same terms up.
    allowed_s = [(1.0 + 1e-9) * (1.0 + model.relative_guard) * model.predict_s(s.blocks) for s in unseen]
    late = [s for s, most_s in zip(unseen, allowed_s, strict=True) if s.median_s > most_s]
    assert 0 < len(late) <= 0.1 * len(unseen)
    assert fitted.guarded([]) == fitted.model


def test_figures_are_the_textbooks() -> None:
    found = figures(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), np.array([1.1, 2.0, 3.0, 4.0, 5.0, 5.4]))
    assert found.r2 == pytest.approx(1.0 - 0.37 / 17.5)
    assert found.adjusted_r2 == pytest.approx(1.0 - (0.37 / 17.5) * 5 / 2)
    assert found.rmse_s == pytest.approx((0.37 / 6) ** 0.5)
    assert found.mae_s == pytest.approx(0.7 / 6)
    assert found.mape == pytest.approx(0.2 / 6)
    assert (found.largest_s, found.largest_relative) == pytest.approx((0.6, 0.1))
    assert figures(np.array([2.0]), np.array([2.0])).r2 is None
    assert figures(np.array([1.0, 2.0]), np.array([1.0, 2.0])).adjusted_r2 is None


def test_the_noise_floor_is_how_well_repeats_predict_each_other() -> None:
    block = (VerifyCost(1, 1),)
    steady = BatchSample(BatchKind.MIXED, block, (2.0, 2.0, 2.0))
    shaky = BatchSample(BatchKind.MIXED, block, (1.0, 2.0))
    assert noise_floor_mape([steady]) == 0.0
    assert noise_floor_mape([shaky]) == pytest.approx((1.0 + 0.5) / 2)
    assert noise_floor_mape([BatchSample(BatchKind.MIXED, block, (1.0,))]) is None
    assert shaky.variation == pytest.approx(0.5**0.5 / 1.5)
    assert medians_of([steady, shaky]).tolist() == [2.0, 1.5]


def test_too_little_is_refused() -> None:
    with pytest.raises(ParameterError, match="train needs at least 10 samples of compute_bound"):
        fit(measured(TRUTH, PLAN.train[:5]))
    broken = [*measured(TRUTH, PLAN.train), BatchSample(BatchKind.MIXED, (VerifyCost(1, 1),), (0.0,))]
    with pytest.raises(ParameterError, match="times above 0"):
        fit(broken)
