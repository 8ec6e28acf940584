"""Expected tokens of a round against enumeration and the papers' closed form."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.acceptance_models import expected_tokens

acceptances = st.lists(st.floats(0.0, 1.0), max_size=6)


@given(acceptances, st.booleans())
def test_equals_the_mean_over_all_verdicts(chances: list[float], bonus: bool) -> None:
    mean = 0.0
    for verdict in product((True, False), repeat=len(chances)):
        probability = prod(chance if hit else 1.0 - chance for chance, hit in zip(chances, verdict, strict=True))
        accepted = verdict.index(False) if False in verdict else len(verdict)
        mean += probability * (accepted + (1 if bonus or accepted < len(verdict) else 0))
    assert expected_tokens(chances, bonus=bonus) == pytest.approx(mean)


@given(st.floats(0.0, 0.999), st.integers(0, 20))
def test_equal_acceptances_give_tslt_eq_8(chance: float, window: int) -> None:
    assert expected_tokens([chance] * window) == pytest.approx((1 - chance ** (window + 1)) / (1 - chance))


def test_certain_drafts() -> None:
    assert expected_tokens([1.0] * 5) == 6.0
    assert expected_tokens([1.0] * 5, bonus=False) == 5.0
    assert expected_tokens([0.0] * 5) == 1.0
    assert expected_tokens([]) == 1.0
