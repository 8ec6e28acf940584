import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.papers.rounds import (
    candidate_plan,
    formula_shape,
    recorded_shape,
    row_bits,
    rows_s,
    speed_up,
    tree_rows,
)


@given(st.floats(0.0, 0.99), st.integers(1, 10))
def test_tokens_of_a_round_are_eq_8(acceptance: float, window: int) -> None:
    shape = formula_shape(acceptance, window)
    assert shape.tokens == pytest.approx((1 - acceptance ** (window + 1)) / (1 - acceptance))
    assert shape.rejection == 1 - acceptance**window


def test_perfect_acceptance_is_no_division_by_zero() -> None:
    assert formula_shape(1.0, 8).tokens == 9.0


@given(st.floats(0.0, 1.0), st.integers(1, 4))
def test_equal_positions_give_the_formula(acceptance: float, window: int) -> None:
    recorded = recorded_shape([np.full(30, acceptance), np.full(20, acceptance)], window)
    expected = formula_shape(acceptance, window)
    assert recorded.tokens == pytest.approx(expected.tokens)
    assert recorded.rejection == pytest.approx(expected.rejection, abs=1e-12)


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=6), st.integers(1, 3))
def test_recorded_rounds_equal_a_walk_through_every_outcome(given_token: list[float], window: int) -> None:
    """All ways in which the positions' tokens can come from the draft or not, each followed round by round."""
    rounds = tokens = full = 0.0
    for outcome in itertools.product((False, True), repeat=len(given_token)):
        weight = prod(p if hit else 1 - p for p, hit in zip(given_token, outcome, strict=True))
        at = 0
        while at + window <= len(given_token):
            hits = list(itertools.takewhile(bool, outcome[at : at + window]))
            rounds, tokens = rounds + weight, tokens + weight * (len(hits) + 1)
            full += weight * (len(hits) == window)
            at += len(hits) + 1
    recorded = recorded_shape([np.array(given_token)], window)
    assert recorded.tokens == pytest.approx(tokens / rounds)
    assert recorded.rejection == pytest.approx(1 - full / rounds, abs=1e-12)


def test_responses_shorter_than_the_window_are_refused() -> None:
    with pytest.raises(ValueError, match="needs a response of at least 4 tokens, found 3"):
        recorded_shape([np.ones(3), np.ones(1)], 4)


def test_whole_rows_need_no_token_ids() -> None:
    assert row_bits(32_000, 32_000, 16) == 512_000  # TSLT Table 1: 0.5 Mbit, which is 64 kB and not 500 (its section 1)
    assert row_bits(32_000, 320, 16) == 320 * (16 + 15)
    assert row_bits(49_152, 49_152, 16) == 786_432


@pytest.mark.parametrize(("expansion", "rows"), [((2, 2, 2), 7), ((4,), 1), ((1, 1, 1), 3), ((3, 2), 4)])
def test_rows_behind_a_tree_are_eq_27(expansion: tuple[int, ...], rows: int) -> None:
    assert tree_rows(expansion) == rows


def test_speed_up_is_eq_10_and_not_eq_9_as_typeset() -> None:
    acceptance, window, small_s, large_s, comm_s = 0.8, 3, 0.01, 0.1, 0.06
    tokens = formula_shape(acceptance, window).tokens
    found = speed_up(tokens, large_s, window * small_s, comm_s, large_s)
    assert found == pytest.approx(2.952 * 0.1 / (0.03 + 0.06 + 0.1))
    as_typeset = (1 - acceptance**4) / ((1 - acceptance) * (window * small_s + comm_s) + large_s) * large_s
    assert abs(found - as_typeset) > 0.9
    assert found > 1  # eq. 28 as printed never is


@pytest.mark.parametrize(
    ("window", "printed_ms"),
    [
        (2, (26.00, 25.12, 24.08, 22.88, 21.52, 20.16)),
        (4, (27.50, 26.96, 26.08, 24.72, 22.75, 20.32)),
        (6, (27.88, 27.63, 27.06, 25.90, 23.75, 20.47)),
        (8, (27.97, 27.87, 27.54, 26.66, 24.56, 20.62)),
    ],
)
def test_dssds_table_1_is_its_eq_9_up_to_rounding(window: int, printed_ms: tuple[float, ...]) -> None:
    """T_down 8 ms, T_NTT 20 ms."""
    for acceptance, printed in zip((0.5, 0.6, 0.7, 0.8, 0.9, 0.99), printed_ms, strict=True):
        rejection = formula_shape(acceptance, window).rejection
        assert 1e3 * rows_s(rejection, 0.008, 1.0, 0.020) == pytest.approx(printed, abs=0.0051)


def test_communication_times_are_dssd_eq_5_and_9() -> None:
    assert rows_s(8, 1e6, 100e6, 0.02) == pytest.approx(0.1)
    assert rows_s(0.5, 1e6, 100e6, 0.02) == pytest.approx(0.025)
    assert rows_s(0.0, 1e6, 100e6, 0.02) == 0.02


def test_candidates_are_as_many_as_cost_least() -> None:
    acceptances = np.array([0.5, 0.75])
    plans = {2**i: candidate_plan(acceptances, 48, 1_000_000, 0.0, most=2**i) for i in range(8)}
    # Rejections meet the two positions 2 to 1, and m draws all fail with acceptance**m.
    fallback = 2 / 3 * 0.5**32 + 1 / 3 * 0.75**32
    best = candidate_plan(acceptances, 48, 1_000_000, 0.0)
    assert best.count == 32
    assert best.fallback == pytest.approx(fallback)
    assert best.down_bits == pytest.approx(32 * 48 + fallback * 1_000_000)
    assert best.down_bits == min(plan.down_bits for plan in plans.values())
    assert candidate_plan(acceptances, 48, 1_000_000, 1e9).count > best.count  # where a second exchange is dear
