import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.acceptance_models import draft_shape
from outrider.contracts.drafting import DraftPlan

PROBABILITIES = st.floats(0.0, 1.0)
SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(st.floats(0.0, 0.99), st.integers(0, 8))
def test_a_chain_commits_what_the_closed_form_says(chance: float, window: int) -> None:
    expected = draft_shape((chance,), window).expected_tokens
    assert expected == pytest.approx((1.0 - chance ** (window + 1)) / (1.0 - chance))  # TSLT eq. 8


@given(PROBABILITIES, SHAPES)
def test_a_tree_accepts_at_least_what_its_first_path_does(chance: float, expansion: list[int]) -> None:
    tree, chain = (draft_shape((chance,), len(expansion), shape) for shape in (expansion, ()))
    assert all(wide >= single for wide, single in zip(tree.passes, chain.passes, strict=True))
    assert tree.nodes[-1] == DraftPlan("token_ids", len(expansion), tuple(expansion)).nodes


def test_a_trees_shape() -> None:
    shape = draft_shape((0.8,), 9, (2, 1, 3), sibling_factor=0.5)
    assert shape.nodes == (2, 4, 10)
    assert shape.steps == pytest.approx((1.0, 2.1, 3.2))  # layers of 1, 2 and 2 parents
    assert shape.passes == pytest.approx((1 - 0.2 * 0.6, 0.8, 1 - 0.2 * 0.6 * 0.8))


def test_the_last_position_holds_for_all_behind_it() -> None:
    assert draft_shape((0.9, 0.5), 4).passes == pytest.approx((0.9, 0.5, 0.5, 0.5))
