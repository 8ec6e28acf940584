"""The longest match of a text's end, at its latest place."""

import random

from hypothesis import given
from hypothesis import strategies as st

from outrider.lookup.suffixes import LEAST_MATCH, Suffixes


def suffixes(*token_ids: int) -> Suffixes:
    made = Suffixes()
    made.extend(token_ids)
    return made


def test_nothing_is_found_in_a_text_that_does_not_repeat_itself() -> None:
    assert suffixes().find(4) is None
    assert suffixes(1, 2).find(4) is None
    assert suffixes(*range(50)).find(4) is None
    assert suffixes(1, 2, 9, 1, 2).find(4) is None, "too short a match"


def test_what_followed_is_found_and_again_behind_the_texts_end() -> None:
    found = suffixes(1, 2, 3, 4, 5, 1, 2, 3).find(8)
    assert found is not None
    assert (found.matched, found.token_ids) == (3, (4, 5, 1, 2, 3, 4, 5, 1))
    assert suffixes(1, 2, 3, 4, 5, 1, 2, 3).find(2) == (3, (4, 5))
    assert suffixes(1, 2, 3, 4, 5, 1, 2, 3).find(0) is None


def test_the_longest_match_counts_and_of_equal_ones_the_latest() -> None:
    found = suffixes(7, 1, 2, 3, 40, 8, 1, 2, 3, 50, 7, 1, 2, 3).find(1)
    assert found == (4, (40,))
    assert suffixes(1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3).find(1) == (3, (50,))


def test_a_run_is_found_in_itself() -> None:
    found = suffixes(5, 5, 5, 5, 5).find(4)
    assert found == (4, (5, 5, 5, 5))


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(1, 6))
def test_it_is_what_a_search_of_the_whole_text_finds(tokens: list[int], most: int) -> None:
    """But where a beginning has more places than are kept: there, none that is longer among those kept."""
    made, cuts = Suffixes(), random.Random(0)
    rest = list(tokens)
    while rest:
        size = cuts.randint(1, 5)
        made.extend(rest[:size])
        rest = rest[size:]
    found = made.find(most)
    matches = []
    for place in range(LEAST_MATCH, len(tokens)):
        matched = 0
        while matched < min(place, 32) and tokens[place - 1 - matched] == tokens[-1 - matched]:
            matched += 1
        if matched >= LEAST_MATCH:
            matches.append((matched, place))
    if not matches:
        assert found is None
        return
    kept = sorted(matches, key=lambda one: one[1])[-16:]
    longest, place = max(kept)
    period = tokens[place:]
    assert found == (longest, tuple((period * most)[:most]))
