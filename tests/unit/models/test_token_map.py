import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import VocabularyMismatchError
from outrider.models.token_map import (
    TokenMap,
    check_same_token_map,
    first_difference,
    usable_vocab_size,
)

token_maps = st.dictionaries(st.integers(0, 30), st.text(max_size=3), max_size=8).map(
    lambda tokens: TokenMap(tuple(sorted(tokens.items())))
)


@given(token_maps, token_maps)
def test_hashes_are_equal_exactly_where_no_id_differs(left: TokenMap, right: TokenMap) -> None:
    assert (left.sha256() == right.sha256()) == (first_difference(left, right) is None) == (left == right)


@given(token_maps, token_maps)
def test_first_difference_is_the_lowest_id_with_different_tokens(left: TokenMap, right: TokenMap) -> None:
    mine, other = dict(left.entries), dict(right.entries)
    differing = [i for i in range(31) if mine.get(i) != other.get(i)]
    assert first_difference(left, right) == (differing[0] if differing else None)


def test_tokens_cannot_be_shifted_between_neighbours() -> None:
    assert TokenMap(((0, "ab"), (1, "c"))).sha256() != TokenMap(((0, "a"), (1, "bc"))).sha256()


def test_mismatch_names_hashes_id_and_tokens() -> None:
    target, drafter = TokenMap(((0, "a"), (1, "b"))), TokenMap(((0, "a"), (1, "x"), (2, "c")))
    with pytest.raises(VocabularyMismatchError, match=r"id 1 is 'b' in the target and 'x' in the drafter") as caught:
        check_same_token_map(target, drafter, target_name="T", drafter_name="D")
    assert target.sha256() in str(caught.value)
    assert drafter.sha256() in str(caught.value)


def test_padding_is_cut_and_gaps_are_kept() -> None:
    tokens = TokenMap(((0, "a"), (4, "b")))
    assert usable_vocab_size(tokens, 8) == 5
    assert usable_vocab_size(tokens, 8, 3) == 3
