import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.papers.wisv.acceptance import Acceptance, constant_bounds, fit, fitted, method_fits
from lab.bench.papers.wisv.published import METHODS, RATES_BPS, WINDOWS, WisvRow
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
    assert acceptance.accepted(window) == pytest.approx(enumerated_tokens(passes, bonus=True) - 1.0)


def rows_of(acceptance: Acceptance, *, bonus: bool) -> list[WisvRow]:
    aals = [acceptance.tokens(window, bonus=bonus) for window in WINDOWS]
    return [WisvRow(1e6, k, Method.SD_GREEDY, 0.0, aal, 0.0, 0.0) for k, aal in zip(WINDOWS, aals, strict=True)]


@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("drift", [-0.01, 0.0, 0.001])
def test_a_fit_finds_what_made_the_rows(drift: float, bonus: bool) -> None:
    made = Acceptance(0.9, drift)
    found = fit(rows_of(made, bonus=bonus), drifts=True, bonus=bonus)
    assert found.acceptance.first == pytest.approx(0.9, abs=1e-5)
    assert found.acceptance.drift == pytest.approx(drift, abs=1e-5)
    assert found.worst < 1e-6


@pytest.mark.parametrize("bonus", [False, True])
def test_bounds_hold_the_constant_that_made_the_rows(bonus: bool) -> None:
    for row in rows_of(Acceptance(0.9), bonus=bonus):
        low, high = constant_bounds(row, bonus=bonus)
        assert low < 0.9 < high
        assert high - low < 0.001


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rate_bps", RATES_BPS)
def test_no_constant_acceptance_gives_every_aal(method: Method, rate_bps: float) -> None:
    without, with_bonus = (method_fits(method, rate_bps, bonus=bonus) for bonus in (False, True))
    assert not without.one_for_all
    assert not with_bonus.one_for_all
    assert without.constant.worst < with_bonus.constant.worst  # no bonus token was committed
    assert without.drifting.worst < 0.006 < without.constant.worst
    assert without.drifting.acceptance.drift > 0.0  # it does not fall with depth


def test_both_uploads_decide_alike() -> None:
    assert fitted(Method.WISV_SELECTIVE, 20e6) == fitted(Method.WISV_FULL, 20e6)
