import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.papers.wisv.acceptance import LONGEST, Acceptance, best_speed, fit, fitted, speed
from lab.bench.papers.wisv.published import METHODS, RATES_BPS, TABLE_1, WINDOWS, WisvRow, printed
from lab.bench.papers.wisv.rounds import Method


def enumerated_tokens(passes: tuple[float, ...], *, bonus: bool) -> float:
    """Sum over every number of accepted tokens of what is committed."""
    total, reached = 0.0, 1.0
    for accepted, chance in enumerate(passes):
        total += reached * (1.0 - chance) * (accepted + 1)
        reached *= chance
    return total + reached * (len(passes) + bonus)


@given(st.floats(0.05, 0.99), st.floats(-0.05, 0.05), st.integers(1, 20), st.booleans())
def test_tokens_are_the_mean_over_outcomes(first: float, drift: float, window: int, bonus: bool) -> None:
    acceptance = Acceptance(first, drift)
    passes = acceptance.at_depths(window)
    assert passes == pytest.approx(np.minimum(1.0, first * np.exp(drift * np.arange(window))))
    assert acceptance.tokens(window, bonus=bonus) == pytest.approx(enumerated_tokens(passes, bonus=bonus))


def rows_of(acceptance: Acceptance) -> list[WisvRow]:
    aals = [acceptance.tokens(window, bonus=False) for window in WINDOWS]
    return [WisvRow(1e6, k, Method.SD_GREEDY, 0.0, aal, 0.0, 0.0) for k, aal in zip(WINDOWS, aals, strict=True)]


@pytest.mark.parametrize("drift", [-0.01, 0.0, 0.001])
def test_a_fit_finds_what_made_the_rows(drift: float) -> None:
    found = fit(rows_of(Acceptance(0.9, drift)))
    assert (found.first, found.drift) == pytest.approx((0.9, drift), abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rate_bps", RATES_BPS)
def test_the_fit_is_near_every_printed_aal_and_does_not_fall_with_depth(method: Method, rate_bps: float) -> None:
    found = fitted(method, rate_bps)
    errors = [found.tokens(row.window, bonus=False) / row.aal_tokens - 1.0 for row in printed(method, rate_bps)]
    assert max(map(abs, errors)) < 0.006
    assert found.drift > 0.0


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("bonus", [False, True])
def test_the_best_window_is_the_best_of_all(method: Method, bonus: bool) -> None:
    best = best_speed(method, 20e6, bonus=bonus)
    every = [speed(method, 20e6, window, bonus=bonus) for window in range(1, LONGEST + 1)]
    assert best in every
    assert best.tokens_per_s == max(one.tokens_per_s for one in every)
    assert best.tokens_per_s == pytest.approx(best.aal_tokens / best.round_s)
    # A pass as long as this makes both ways equally fast.
    assert best.aal_tokens / (best.round_s + best.worth_pass_s) == pytest.approx(1.0 / best.worth_pass_s)


def test_greedy_with_its_bonus_token_beats_every_printed_row_at_its_own_window() -> None:
    most = max(row.tokens_per_s for row in TABLE_1)
    assert best_speed(Method.SD_GREEDY, 20e6, bonus=True).tokens_per_s > most
    assert best_speed(Method.SD_GREEDY, 20e6, bonus=False).tokens_per_s < most


def test_a_window_of_one_without_bonus_is_never_worth_a_pass() -> None:
    assert speed(Method.SD_GREEDY, 20e6, 1, bonus=False).worth_pass_s == float("inf")


def test_both_uploads_decide_alike() -> None:
    assert fitted(Method.WISV_SELECTIVE, 20e6) == fitted(Method.WISV_FULL, 20e6)
