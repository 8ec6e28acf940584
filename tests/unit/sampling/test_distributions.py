"""The arithmetic of ratio sampling is exact for any pair of distributions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError
from outrider.sampling.distributions import (
    Probs,
    acceptance_probability,
    candidate_acceptance,
    draw,
    draws,
    fixed_point,
    residual,
    softmax,
    total_variation,
    without,
)

weights = st.one_of(st.just(0.0), st.floats(1e-300, 1e-290), st.floats(1e-9, 1.0))
rows = st.lists(weights, min_size=1, max_size=8).filter(lambda row: sum(row) > 0)
pairs = st.lists(st.tuples(weights, weights), min_size=1, max_size=8).filter(
    lambda pair: sum(one for one, _ in pair) > 0 and sum(other for _, other in pair) > 0
)
open_unit = st.floats(2.0**-53, 1 - 2.0**-53)


def normalised(row: list[float]) -> Probs:
    probs: Probs = np.array(row) / np.sum(row)
    return probs


@given(pairs)
def test_accepted_and_residual_add_up_to_the_target(pair: list[tuple[float, float]]) -> None:
    """The theorem behind the ratio rule (Leviathan et al. 2023, appendix A.1)."""
    target, draft = normalised([one for one, _ in pair]), normalised([other for _, other in pair])
    accepted = np.array([q * acceptance_probability(p, q) for p, q in zip(target, draft, strict=True)])
    emitted = accepted + (1 - accepted.sum()) * residual(target, draft)
    assert emitted == pytest.approx(target, abs=1e-12)
    assert accepted.sum() == pytest.approx(1 - total_variation(target, draft), abs=1e-12)


@given(pairs)
def test_accepted_candidates_are_distributed_as_the_residual(pair: list[tuple[float, float]]) -> None:
    target, draft = normalised([one for one, _ in pair]), normalised([other for _, other in pair])
    accepted = target * candidate_acceptance(target, draft)
    assert accepted == pytest.approx(total_variation(target, draft) * residual(target, draft), abs=1e-12)
    assert (accepted <= target).all()


def test_a_token_that_cannot_have_been_drawn_is_never_accepted() -> None:
    assert acceptance_probability(0.5, 0.0) == 0.0
    assert acceptance_probability(1e-320, 1.0) == 1e-320
    assert acceptance_probability(1.0, 1e-320) == 1.0
    assert candidate_acceptance(np.array([0.0, 1.0]), np.array([0.5, 0.5])).tolist() == [0.0, 0.5]


def test_equal_distributions_leave_the_target() -> None:
    row = normalised([0.1, 0.2, 0.7])
    assert (residual(row, row) == row).all()


@given(rows, open_unit)
def test_a_draw_is_the_index_whose_interval_holds_the_uniform(row: list[float], uniform: float) -> None:
    index = draw(np.array(row), uniform)
    assert row[index] > 0
    total = sum(map(Fraction, row))
    below = sum(map(Fraction, row[:index])) / total
    slack = Fraction(1, 2**48)  # of the cumulative sum's rounding
    assert below - slack <= Fraction(uniform) <= below + Fraction(row[index]) / total + slack


@given(rows, st.lists(open_unit, max_size=5))
def test_many_draws_are_the_single_ones(row: list[float], numbers: list[float]) -> None:
    assert draws(np.array(row), np.array(numbers)).tolist() == [draw(np.array(row), number) for number in numbers]


@pytest.mark.parametrize("row", [[], [0.0, 0.0], [np.nan, 1.0]])
def test_nothing_cannot_be_drawn_from(row: list[float]) -> None:
    with pytest.raises(ParameterError, match="a positive sum"):
        draw(np.array(row), 0.5)


def test_the_ends_of_the_unit_interval_draw_possible_tokens() -> None:
    row = np.array([0.0, 0.1, 0.2, 0.7, 0.0])
    assert draw(row, 2.0**-53) == 1
    assert draw(row, 1 - 2.0**-53) == 3


@example([0.0, 7.873993040894878e-38], 1)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=6), st.integers(0, 5))
def test_softmax_is_normalised_and_removed_logits_have_nothing(logits: list[float], removed: int) -> None:
    row = np.array([*logits, -np.inf], dtype=np.float32)
    if removed < len(logits) - 1:
        row[removed] = -np.inf
    probs = softmax(np.stack([row, row]))
    assert probs.sum(axis=1) == pytest.approx([1.0, 1.0], abs=1e-12)
    assert (probs[0] == softmax(row)).all()
    assert (probs[:, np.isneginf(row)] == 0).all()
    assert probs[0, row.argmax()] == probs[0].max()  # a tie in float64 may have been none in float32


@pytest.mark.parametrize("row", [[], [-np.inf], [np.nan, 0.0], [np.inf, 0.0]])
def test_softmax_refuses_rows_without_a_finite_largest(row: list[float]) -> None:
    with pytest.raises(ParameterError, match="a finite largest value"):
        softmax(np.array(row, dtype=np.float32))


@given(rows, st.data())
def test_without_is_the_distribution_given_that_an_index_is_not_drawn(row: list[float], data: st.DataObject) -> None:
    probs = normalised(row)
    index = data.draw(st.integers(0, len(row) - 1))
    rest = without(probs, index)
    assert rest[index] == 0
    left = np.delete(probs, index)
    if left.sum() > 0:
        assert rest.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.delete(rest, index) == pytest.approx(left / left.sum(), abs=1e-12)
    else:
        assert not rest.any()


@given(rows, st.sampled_from([8, 16, 24, 32]))
def test_fixed_point_adds_up_and_is_off_by_less_than_a_step(row: list[float], bits: int) -> None:
    probs = normalised(row)
    numerators = fixed_point(probs, bits)
    assert numerators.dtype == np.int64
    assert numerators.sum() == 2**bits
    assert (numerators >= 0).all()
    assert np.abs(numerators - probs * 2.0**bits).max() < 1 + 1e-5
    assert (numerators[probs == 0] == 0).all()


@given(st.integers(0, 2**32), st.sampled_from([8, 16, 24, 32]), st.floats(0.0, 20.0))
def test_fixed_point_of_whole_vocabularies(seed: int, bits: int, spread: float) -> None:
    probs = softmax(np.random.default_rng(seed).normal(size=3001) * spread)
    numerators = fixed_point(probs, bits)
    assert numerators.sum() == 2**bits
    assert (numerators >= 0).all()
    assert np.abs(numerators - probs * 2.0**bits).max() < 1 + 1e-5


@pytest.mark.parametrize("bits", [7, 33])
def test_fixed_point_refuses_widths_out_of_range(bits: int) -> None:
    with pytest.raises(ParameterError, match=r"scalar_bits needs an integer in 8\.\.32"):
        fixed_point(np.array([1.0]), bits)
