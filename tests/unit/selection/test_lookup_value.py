"""How much of a draft is verified: what has a step commit most tokens per second."""

from itertools import accumulate, pairwise
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.selection.lookup_value import LookupValue, beats, value_of
from outrider.selection.situation import Estimate, VerifierView

SURVIVALS = (0.9, 0.7, 0.5, 0.3, 0.2)


def view(row_s: float, blocks: float = 1.0, fixed_s: float = 0.0) -> VerifierView:
    return VerifierView(LinearCostModel(row_s, 0.0, 0.0, 0.04), 0.0, blocks, fixed_s)


def test_rows_that_cost_nothing_are_all_worth_it_and_dear_ones_none() -> None:
    assert value_of(SURVIVALS, view(0.0), 100).tokens == 5
    assert value_of(SURVIVALS, view(1.0), 100).tokens == 0
    assert value_of((), view(0.0), 100).tokens == 0


def test_the_dearer_a_row_and_the_more_share_a_step_the_fewer() -> None:
    by_price = [value_of(SURVIVALS, view(row_s), 100).tokens for row_s in (0.0, 0.005, 0.01, 0.02, 0.1)]
    by_others = [value_of(SURVIVALS, view(0.004, blocks), 100).tokens for blocks in (1.0, 4.0, 16.0, 64.0)]
    for counts in (by_price, by_others):
        assert all(more >= fewer for more, fewer in pairwise(counts))
        assert counts[0] > counts[-1]


@given(
    st.lists(st.floats(0.05, 1.0), max_size=10),
    st.integers(1, 20),
    st.floats(0.0, 0.05),
    st.integers(1, 500),
)
def test_no_other_front_commits_more_per_second(each: list[float], blocks: int, row_s: float, position: int) -> None:
    survivals: tuple[float, ...] = tuple(accumulate(each, mul))
    model = LinearCostModel(row_s, 1e-6, 1e-6, 0.03)
    worth = value_of(survivals, VerifierView(model, 0.0, blocks, 0.0), position)

    def per_s(tokens: int) -> float:
        cached = max(position - 1, 0)
        batch = [VerifyCost(1, cached)] * (blocks - 1) + [VerifyCost(1 + tokens, cached)]
        return float(blocks + sum(survivals[:tokens])) / model.predict_s(batch)

    best = max(per_s(tokens) for tokens in range(len(survivals) + 1))
    assert per_s(worth.tokens) >= best / 1.0101
    assert worth.gain_tokens == pytest.approx(sum(survivals[: worth.tokens]))


def chosen(round_s: float, tokens: float, verifier_s: float, load: float = 0.0) -> Estimate:
    """Of a device's draft, beside rounds of 0.05 s alone."""
    return Estimate(None, round_s / tokens, tokens, round_s, 0.1, 0.05, load, verifier_s / tokens)


def test_it_goes_before_a_device_where_it_costs_less_per_token() -> None:
    worth = LookupValue(4, 1.5, longer_s=0.01, step_s=0.04)  # 0.024 s a token
    assert beats(worth, view(0.0), chosen(0.1, 3.0, 0.05))
    assert not beats(worth, view(0.0), chosen(0.06, 3.0, 0.05))
    assert not beats(LookupValue(0), view(0.0), chosen(1.0, 1.0, 0.05)), "there is nothing to go before it"


def test_on_a_busy_verifier_its_seconds_count() -> None:
    """A far device that needs little of the verifier is slow for its own response alone."""
    worth, far = LookupValue(4, 1.5, longer_s=0.02, step_s=0.04), chosen(0.3, 4.0, 0.01)
    assert beats(worth, view(0.0, blocks=4.0), far)
    assert not beats(worth, view(0.0, blocks=4.0), chosen(0.3, 4.0, 0.01, load=1.0))
