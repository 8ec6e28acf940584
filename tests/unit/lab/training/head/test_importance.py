from math import exp

import pytest

from lab.training.head.relabelling import Smoothing, smoothed_importance


def test_sum_and_maximum_are_those_of_the_equation() -> None:
    places, labels, kappa = [0, 1, 4, 9], [1, 0, 1, 0], 2.0
    found = smoothed_importance(places, labels, kappa)
    assert found == pytest.approx([1 + exp(-2), exp(-0.5) + exp(-1.5), exp(-2) + 1, exp(-4.5) + exp(-2.5)])
    found = smoothed_importance(places, labels, kappa, Smoothing.MAX)
    assert found == pytest.approx([1.0, exp(-0.5), 1.0, exp(-2.5)])


def test_the_maximum_is_one_wherever_a_mismatch_is_critical_and_the_sum_tells_them_apart() -> None:
    labels = [1, 1, 0, 0, 0, 0, 1]
    largest = smoothed_importance(range(7), labels, 3.0, Smoothing.MAX)
    total = smoothed_importance(range(7), labels, 3.0)
    assert [value for value, label in zip(largest, labels, strict=True) if label] == [1.0] * 3
    assert total[0] > total[6]


def test_without_critical_mismatches_none_is_important() -> None:
    assert smoothed_importance([0, 3], [0, 0], 2.0).tolist() == [0.0, 0.0]
    assert len(smoothed_importance([], [], 2.0)) == 0
