"""Many times in little memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.fleet.results import TimeHistogram


@given(st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=100), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_a_quantile_is_right_to_a_hundredth(times_s: list[float], share: float) -> None:
    histogram = TimeHistogram()
    for seconds in times_s:
        histogram.add(seconds)
    rank = min(len(times_s) - 1, max(0, -int(-share * len(times_s) // 1) - 1))
    assert histogram.quantile_s(share) == pytest.approx(sorted(times_s)[rank], rel=0.011)


def test_none_take_no_time() -> None:
    assert TimeHistogram().quantile_s(0.5) == 0.0
