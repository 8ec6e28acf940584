import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.harness.statistics import Estimate, estimate, quotient, ratio


def test_intervals_redraw_whole_responses() -> None:
    apart = [np.zeros(50), np.ones(50)]
    mixed = [np.tile([0.0, 1.0], 25)] * 2
    assert (estimate(apart).mean, estimate(apart).low, estimate(apart).high) == (0.5, 0.0, 1.0)
    assert (estimate(mixed).mean, estimate(mixed).low, estimate(mixed).high) == (0.5, 0.5, 0.5)
    assert estimate([np.ones(1), np.zeros(3)]).mean == 0.25  # positions count alike, not responses
    with pytest.raises(ValueError, match="needs a positive sum"):
        estimate([np.zeros(0)])


@given(pairs=st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 9)), min_size=1, max_size=8))
def test_a_ratio_lies_in_its_interval_unless_responses_are_all_alike(pairs: list[tuple[float, int]]) -> None:
    tops, bottoms = [top for top, _ in pairs], [float(bottom) for _, bottom in pairs]
    found = ratio(tops, bottoms)
    each = [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]
    assert found.mean == pytest.approx(sum(tops) / sum(bottoms))
    assert min(each) - 1e-9 <= found.low <= found.high <= max(each) + 1e-9


def test_a_ratio_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a positive sum"):
        ratio([1.0], [0.0])


def test_a_quotient_redraws_both_sides_by_themselves() -> None:
    apart, same = ([0.0, 4.0], [1.0, 1.0]), ([2.0, 2.0], [1.0, 1.0])
    assert quotient(same, same) == Estimate(1.0, 1.0, 1.0)
    found = quotient(apart, same)
    assert (found.mean, found.low, found.high) == (1.0, 0.0, 2.0)
    rng = np.random.default_rng(0)
    over, under = (list(rng.normal(mean, 1.0, 400)) for mean in (20.0, 10.0))
    wide = quotient((over, [1.0] * 400), (under, [1.0] * 400))
    deviation = 2.0 * (0.05**2 / 20.0**2 + 0.05**2 / 10.0**2) ** 0.5  # of a ratio of two means, to first order
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * deviation, rel=0.15)


def test_an_estimate_is_shown_in_any_unit() -> None:
    assert str(Estimate(0.4123, 0.38, 0.441)) == "0.412 [0.380, 0.441]"
    assert Estimate(0.4123, 0.38, 0.441).shown(1e3, 1) == "412.3 [380.0, 441.0]"
