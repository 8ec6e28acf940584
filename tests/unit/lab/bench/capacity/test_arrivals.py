from itertools import pairwise
from statistics import mean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.capacity.log import OPEN, arrival_times_s


@given(
    kind=st.sampled_from(sorted(OPEN)),
    rate_per_s=st.floats(0.1, 50.0),
    count=st.integers(0, 50),
    seed=st.integers(0, 9),
)
def test_times_are_a_function_of_the_seed_ascend_and_begin_with_the_same(
    kind: str, rate_per_s: float, count: int, seed: int
) -> None:
    times_s = arrival_times_s(kind, rate_per_s, count, (seed, 0))
    assert times_s == arrival_times_s(kind, rate_per_s, count, (seed, 0))
    assert len(times_s) == count
    assert list(times_s) == sorted(times_s)
    assert arrival_times_s(kind, rate_per_s, count + 5, (seed, 0))[:count] == times_s
    assert not count or times_s != arrival_times_s(kind, rate_per_s, count, (seed, 1))


@pytest.mark.parametrize("kind", sorted(OPEN))
def test_the_rate_is_kept_on_average(kind: str) -> None:
    times_s = arrival_times_s(kind, 4.0, 20_000, (0,))
    assert len(times_s) / times_s[-1] == pytest.approx(4.0, rel=0.05)


def test_bursts_are_bursts_and_poisson_is_not() -> None:
    for kind, least, most in (("poisson", 0.9, 1.1), ("bursts", 3.0, 50.0)):
        gaps_s = [after - before for before, after in pairwise(arrival_times_s(kind, 4.0, 20_000, (0,)))]
        assert least < pvariance(gaps_s) / mean(gaps_s) ** 2 < most  # 1 of exponential gaps
