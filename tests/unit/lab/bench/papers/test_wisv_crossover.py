import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.papers.wisv.crossover import RATES_BPS, RTTS_S, RULE_RTT_S, break_even_rtt_s, cell, grid, uploads
from lab.bench.papers.wisv.rounds import Method


@given(st.integers(1, 64), st.floats(0.01, 0.99), st.sampled_from(RATES_BPS))
def test_uploads_are_even_at_their_break_even_rtt(window: int, mismatch: float, rate_bps: float) -> None:
    even_s = break_even_rtt_s(window, mismatch, rate_bps)
    if even_s > 0.0:
        at = cell(window, mismatch, rate_bps, even_s)
        assert at.full_s == pytest.approx(at.selective_s)
        assert cell(window, mismatch, rate_bps, 0.99 * even_s).best is Method.WISV_SELECTIVE
    assert cell(window, mismatch, rate_bps, 1.01 * even_s + 1e-6).best is Method.WISV_FULL


def test_break_even_is_near_what_states_and_mismatches_say() -> None:
    """(K - M) states over the rate, over the probability of a second exchange."""
    any_mismatch = 1.0 - 0.9**10
    expected = 9 * 32_768 / 20e6 / any_mismatch
    assert break_even_rtt_s(10, 0.1, 20e6) == pytest.approx(expected, rel=1e-3)
    assert break_even_rtt_s(10, 1.0, 20e6) == 0.0  # every state is asked for
    assert break_even_rtt_s(10, 0.0, 20e6) == float("inf")  # nothing ever is


def test_the_rule_loses_exactly_where_it_takes_the_slower_one() -> None:
    found = uploads(24, 0.1)
    assert len(found.cells) == len(RTTS_S) * len(RATES_BPS)
    assert len({(one.rate_bps, one.rtt_s) for one in grid(24, 0.1)}) == len(found.cells)
    wrong = set(found.wrong)
    for one in found.cells:
        taken_s = one.full_s if one.rtt_s > RULE_RTT_S else one.selective_s
        assert one.lost_s == pytest.approx(taken_s - min(one.full_s, one.selective_s))
        assert (one in wrong) == (taken_s > min(one.full_s, one.selective_s))


def test_the_rule_is_wrong_on_a_fast_short_link_and_on_a_slow_long_one() -> None:
    assert cell(10, 0.1, 498e6, 0.005).best is Method.WISV_FULL
    assert cell(10, 0.1, 5e6, 0.050).best is Method.WISV_SELECTIVE
    assert cell(10, 0.1, 498e6, 0.005).lost_s > 0.0
    assert cell(10, 0.1, 5e6, 0.050).lost_s > 0.0
    assert cell(10, 0.1, 498e6, 0.050).lost_s == cell(10, 0.1, 20e6, 0.005).lost_s == 0.0
