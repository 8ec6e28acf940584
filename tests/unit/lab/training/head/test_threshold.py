import numpy as np
import pytest

from lab.training.head.sweep import choose_threshold, drop_upper_bound, mean_interval
from outrider.contracts.errors import ShapeError

THRESHOLDS = (0.0, 0.2, 0.4, 0.6)


def test_a_drop_that_is_the_same_everywhere_is_its_own_bound() -> None:
    strict = [0.9, 0.5, 1.0, 0.7]
    assert drop_upper_bound(strict, strict) == 0.0
    assert drop_upper_bound(strict, [score - 0.2 for score in strict]) == pytest.approx(0.2)
    assert drop_upper_bound(strict, [score + 0.1 for score in strict]) == pytest.approx(-0.1)


def test_the_bound_is_that_of_the_binomial_for_one_task_in_many() -> None:
    """One of 100 tasks falls by 1: the mean drop of a resample is Poisson-like, its 95 % quantile 3 in 100."""
    strict = [1.0] * 100
    assert drop_upper_bound(strict, [0.0, *strict[1:]]) == pytest.approx(0.03)
    assert drop_upper_bound(strict, [0.0, *strict[1:]], confidence=0.5) == pytest.approx(0.01)


def test_the_bound_is_paired_by_task() -> None:
    rng = np.random.default_rng(0)
    strict = rng.integers(0, 2, 200).astype(float).tolist()
    assert drop_upper_bound(strict, strict) == 0.0, "however much tasks differ"
    assert drop_upper_bound(strict, rng.permutation(strict).tolist()) > 0.05


def test_the_bound_covers_the_truth_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(1), 0
    for seed in range(60):
        semantic = (1.0 - rng.normal(0.02, 0.1, 80)).tolist()
        covered += drop_upper_bound([1.0] * 80, semantic, seed=seed) >= 0.02
    assert covered >= 52


def test_scores_of_other_tasks_are_refused() -> None:
    with pytest.raises(ShapeError, match="scores of the same tasks"):
        drop_upper_bound([1.0], [1.0, 0.0])
    with pytest.raises(ShapeError, match="at least one"):
        drop_upper_bound([], [])


def test_the_last_one_before_the_first_failure_is_chosen() -> None:
    assert choose_threshold(THRESHOLDS, [0.0, 0.004, 0.009, 0.02], 0.01) == 0.4
    assert choose_threshold(THRESHOLDS, [0.0, 0.004, 0.009, 0.0099], 0.01) == 0.6


def test_none_passes() -> None:
    assert choose_threshold(THRESHOLDS, [0.02] * 4, 0.01) == 0.0
    assert choose_threshold(THRESHOLDS, [0.0, 0.01, 0.0, 0.0], 0.01) == 0.0, "the limit itself is too much"


def test_what_passes_behind_a_failure_is_not_chosen() -> None:
    assert choose_threshold(THRESHOLDS, [0.0, 0.005, 0.012, 0.001], 0.01) == 0.2


def test_an_interval_holds_its_mean() -> None:
    low, high = mean_interval([0.0, 1.0] * 50)
    assert low == pytest.approx(0.4, abs=0.02)
    assert high == pytest.approx(0.6, abs=0.02)
    assert mean_interval([0.7] * 5) == pytest.approx((0.7, 0.7))
