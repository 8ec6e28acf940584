from random import Random

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.session.verdicts import SentBlock
from tests.unit.session.conversation import path
from tests.unit.session.random_rounds import random_parents


def test_elements_are_the_correction_and_the_nodes() -> None:
    chain = SentBlock(None, (4, 5), None)
    assert chain.length == 2
    assert [chain.tokens_to(number) for number in range(3)] == [(), (4,), (4, 5)]
    corrected = SentBlock(9, (4, 5), None)
    assert corrected.length == 3
    assert [corrected.tokens_to(number) for number in range(4)] == [(), (9,), (9, 4), (9, 4, 5)]
    tree = SentBlock(9, (4, 5, 6), (-1, -1, 1))
    assert [tree.tokens_to(number) for number in range(5)] == [(), (9,), (9, 4), (9, 5), (9, 5, 6)]


def test_the_longest_path_is_found() -> None:
    chain = SentBlock(9, (4, 5), None)
    assert [chain.accepted(tokens) for tokens in ((), (8,), (9,), (9, 4), (9, 5), (9, 4, 5, 7))] == [0, 0, 1, 2, 1, 3]
    # Siblings drawn with replacement: the second 4 goes on as the verdict does.
    tree = SentBlock(None, (4, 4, 6, 5, 7), (-1, -1, 0, 1, 3))
    assert tree.accepted((4,)) == 1
    assert tree.accepted((4, 5, 8)) == 4
    assert tree.accepted((4, 6)) == 3
    assert tree.accepted((4, 5, 7)) == 5
    assert tree.accepted((6,)) == 0


@given(seed=st.integers(0, 2**32), corrected=st.booleans(), appended=st.lists(st.integers(0, 2), max_size=3))
def test_a_verdict_and_what_is_appended_are_what_was_committed(
    seed: int, appended: list[int], *, corrected: bool
) -> None:
    rng = Random(seed)
    parents = random_parents(rng, DraftPlan("tslt_tree", 3, (3, 2, 2)))
    token_ids = tuple(rng.randrange(3) for _ in parents)
    draft = Draft("g", 1, 0, token_ids, correction=1 if corrected else None, parents=parents)
    accepted = path(rng, draft)
    committed = (*accepted, *appended)
    block = SentBlock.of(draft)
    number = block.accepted(committed)
    told = block.tokens_to(number)
    assert 0 <= number <= block.length
    assert committed[: len(told)] == told
    assert len(told) >= len(accepted)
