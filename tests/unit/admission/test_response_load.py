"""What a promise needs and how much all may need, against the formulas written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.admission.history import Histories, ResponseMean
from outrider.admission.response_load import VerifierNow, response_load, useful_share
from outrider.admission.rounds import MeasuredRounds, RoundShape
from outrider.admission.rules import AdmissionRules
from outrider.admission.share_correction import ShareCorrections
from outrider.contracts.cost import LinearCostModel
from outrider.selection.modes import DRAFT, NONE

COSTS = LinearCostModel(1e-3, 1e-6, 1e-5, 0.02)
ROW, INTERACTION, READ, _ = COSTS.slopes


def block_s(rows: float, cached: int) -> float:
    return ROW * rows + INTERACTION * rows * (rows + cached) + READ * cached


def test_a_token_costs_its_rounds_rows_over_its_rounds_tokens() -> None:
    drafting = VerifierNow(COSTS, RoundShape(rows=5.0, tokens=3.2, rounds=1))
    expected = 8.0 * (block_s(5, 150) / 3.2 + block_s(100, 0) / 100.0)
    assert response_load(8.0, 100, 100.0, drafting) == pytest.approx(expected)


def test_a_mean_of_rows_lies_between_whole_ones() -> None:
    between, below, above = (VerifierNow(COSTS, RoundShape(rows=rows, rounds=1)) for rows in (2.25, 2.0, 3.0))
    low, high = response_load(4.0, 0, 200.0, below), response_load(4.0, 0, 200.0, above)
    assert response_load(4.0, 0, 200.0, between) == pytest.approx(0.75 * low + 0.25 * high)


def test_the_price_is_that_of_the_tuner_in_force() -> None:
    measured = MeasuredRounds()
    for _ in range(100):
        measured.round(9, 4, 0.2, DRAFT)
    assert measured.shape(NONE) == RoundShape(), "nothing was measured under it"
    assert measured.shape(DRAFT).rows == pytest.approx(9.0)
    assert measured.shape(DRAFT).tokens == pytest.approx(4.0)
    assert (measured.shape(DRAFT).drafted, measured.shape(DRAFT).away_s) == pytest.approx((1.0, 0.2))
    drafting, alone = (VerifierNow(COSTS, measured.shape(mode)) for mode in (DRAFT, NONE))
    assert response_load(4.0, 0, 100.0, drafting) == pytest.approx(4.0 * block_s(9, 50) / 4.0)
    assert response_load(4.0, 0, 100.0, alone) == pytest.approx(4.0 * block_s(1, 50))


def test_the_fastest_promise_sets_how_long_passes_may_be() -> None:
    drafting = VerifierNow(COSTS, RoundShape(5.0, 4.0, away_s=0.1, drafted=1.0, rounds=1))
    assert useful_share(8.0, drafting) == pytest.approx(1 - 0.02 / ((4.0 / 8.0 - 0.1) / 1.5))
    alone = VerifierNow(COSTS, RoundShape(rounds=1))
    assert useful_share(8.0, alone) == pytest.approx(1 - 0.02 * 8.0), "in every pass: none is waited for"
    assert useful_share(0.0, alone) == 1.0
    assert useful_share(60.0, alone) == 0.0, "a pass takes longer than a token may"
    assert useful_share(50.0, drafting) == 0.0, "it is away for longer than its tokens last"


@given(st.floats(0.1, 100.0), st.floats(0.1, 100.0))
def test_a_faster_promise_needs_more_and_leaves_less(one: float, other: float) -> None:
    slow, fast = sorted((one, other))
    now = VerifierNow(COSTS, RoundShape(3.0, 2.0, away_s=0.05, drafted=1.0, rounds=1))
    assert response_load(slow, 50, 100.0, now) <= response_load(fast, 50, 100.0, now)
    assert 0.0 <= useful_share(fast, now) <= useful_share(slow, now) <= 1.0


def test_lengths_are_those_a_class_had() -> None:
    known = Histories()
    assert known.of("a").tokens() == 128.0
    for _ in range(400):
        known.ended("a", 40, 5.0)
    assert known.of("a").tokens() == pytest.approx(40.0, abs=1.0)
    assert known.of("b").tokens() == known.of("a").tokens(), "all there is to go by"
    assert known.of("b").mean_duration_s(4.0) == pytest.approx(10.0, rel=0.05), "by its promise"
    known.ended("b", 400, 50.0)
    assert known.of("b").tokens() > 150.0
    assert known.of("a").mean_duration_s(4.0) == pytest.approx(5.0)
    assert known.of("a").tokens(most=16.0) == 16.0


def test_memory_is_expected_as_of_a_response_at_any_point_of_its_output() -> None:
    alike = ResponseMean(100.0, 100.0**2, 1.0, 50)
    mean, variance = alike.kv(300, float("inf"), 16)
    assert mean == 300 + 50 + 8
    assert variance == pytest.approx(100.0**2 / 12)


def test_the_floor_is_a_place_at_least_and_never_all() -> None:
    assert AdmissionRules(max_active=32).floor_places == 2
    assert AdmissionRules(max_active=4).floor_places == 1
    assert AdmissionRules(max_active=1).floor_places == 0
    assert AdmissionRules(max_active=2, best_effort_floor=0.5).floor_places == 1
    assert AdmissionRules(best_effort_floor=0.0).floor_places == 0


@pytest.mark.parametrize("late_share", [0.02, 0.3])
def test_trust_settles_by_how_many_promises_are_broken(late_share: float) -> None:
    corrections, every = ShareCorrections(), round(1 / late_share)
    for number in range(3000):
        corrections.ended("fast", kept=number % every != 0, pressure=1.0)
    assert (corrections.of("fast") > 0.9) is (late_share < 0.1)
    assert 0.2 <= corrections.of("fast") <= 1.0
    assert corrections.of("slow") == 1.0
