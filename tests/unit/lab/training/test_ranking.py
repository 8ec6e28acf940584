import numpy as np
import pytest

from lab.training.ranking import area_under_curve


def test_the_area_under_the_curve_counts_pairs_and_half_of_ties() -> None:
    probs = np.array([0.1, 0.4, 0.4, 0.9])
    assert area_under_curve(probs, [0, 0, 1, 1]) == pytest.approx((0.5 + 1 + 1 + 1) / 4)
    assert area_under_curve(probs, [1, 1, 1, 1]) is None
