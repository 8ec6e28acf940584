"""What a match is believed: by what came true of matches as long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.lookup.matches import Matches, kind_of


def test_longer_matches_are_believed_more_to_begin_with() -> None:
    likely = [Matches().likely(matched) for matched in (3, 4, 6, 10, 16, 32)]
    assert likely == sorted(likely)
    assert likely[0] == 0.5


@pytest.mark.parametrize(
    ("matched", "kind"), [(3, 0), (4, 1), (5, 1), (6, 2), (9, 2), (10, 3), (15, 3), (16, 4), (32, 4)]
)
def test_every_length_is_of_a_kind(matched: int, kind: int) -> None:
    assert kind_of(matched) == kind


def test_what_is_behind_the_first_wrong_token_tells_nothing() -> None:
    one, two = Matches(), Matches()
    one.came(3, (1, 2, 3, 4), (1, 9, 3, 4))
    two.came(3, (1, 2), (1, 9))
    assert [one.likely(n) for n in range(3, 20)] == [two.likely(n) for n in range(3, 20)]
    assert one.likely(3) > 0.5
    assert one.likely(4) < Matches().likely(4)
    assert one.likely(6) == Matches().likely(6)


def test_what_is_not_committed_yet_tells_nothing() -> None:
    one = Matches()
    one.came(3, (1, 2, 3), ())
    assert one.likely(3) == Matches().likely(3)


def test_a_text_has_its_own_experience_on_top_of_all_others() -> None:
    everybody = Matches()
    good, bad = Matches(everybody), Matches(everybody)
    for _ in range(40):
        good.came(3, (1,), (1,))
        bad.came(3, (1,), (2,))
    assert good.likely(3) > 0.8
    assert bad.likely(3) < 0.2
    assert 0.3 < Matches(everybody).likely(3) < 0.7, "who is new goes by both"


@given(st.lists(st.tuples(st.integers(3, 40), st.booleans()), max_size=60), st.integers(3, 20), st.integers(0, 12))
def test_survivals_are_probabilities_that_fall(seen: list[tuple[int, bool]], matched: int, tokens: int) -> None:
    matches = Matches(Matches())
    for length, true in seen:
        matches.came(length, (1,), (int(true),))
    survivals = matches.survivals(matched, tokens)
    assert len(survivals) == tokens
    assert all(0.0 < survival <= 1.0 for survival in survivals)
    assert list(survivals) == sorted(survivals, reverse=True)
