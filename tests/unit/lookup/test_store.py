"""Earlier responses: bounded, the oldest forgotten, and nobody sees another's."""

import random

from hypothesis import given
from hypothesis import strategies as st

from outrider.lookup.store import EarlierTexts
from outrider.lookup.suffixes import Suffixes


def test_what_followed_is_found_in_ones_own_responses() -> None:
    store = EarlierTexts(100)
    store.add("a", (1, 2, 3, 4, 5, 6))
    assert store.find("a", (9, 9, 1, 2, 3), 2) == (3, (4, 5))
    assert store.find("a", (1, 2, 3, 4), 9) == (4, (5, 6))
    assert store.find("a", (2, 3), 9) is None, "too short"
    assert store.find("a", (1, 2, 3), 0) is None
    assert store.find("a", (7, 7, 7), 9) is None


def test_the_longest_match_counts_and_of_equal_ones_the_latest() -> None:
    store = EarlierTexts(100)
    store.add("a", (7, 1, 2, 3, 40))
    store.add("a", (8, 1, 2, 3, 50))
    assert store.find("a", (1, 2, 3), 1) == (3, (50,))
    assert store.find("a", (7, 1, 2, 3), 1) == (4, (40,))


def test_nothing_of_nobody_is_kept_and_nobody_finds_anything() -> None:
    store = EarlierTexts(100)
    store.add("", (1, 2, 3, 4))
    assert store.tokens == 0
    store.add("a", (1, 2, 3, 4))
    assert store.find("", (1, 2, 3), 1) is None


def test_a_store_of_no_size_keeps_nothing() -> None:
    store = EarlierTexts(0)
    store.add("a", (1, 2, 3, 4))
    assert store.find("a", (1, 2, 3), 1) is None


texts = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 2), max_size=20)), max_size=25)


@given(texts, st.integers(0, 60), st.lists(st.integers(0, 2), max_size=12))
def test_it_is_bounded_and_what_is_found_is_of_the_tenants_latest(
    added: list[tuple[str, list[int]]], most: int, text: list[int]
) -> None:
    """Each tenant's tokens are of a range of their own, so that a token says whose it is."""
    store, ranges = EarlierTexts(most), {"a": 10, "b": 20, "c": 30}
    kept: list[tuple[str, list[int]]] = []
    for tenant, response in added:
        own = [ranges[tenant] + token_id for token_id in response]
        store.add(tenant, own)
        if 3 < len(own) <= most:
            kept.append((tenant, own))
        while sum(len(one) for _, one in kept) > most:
            del kept[0]
        assert store.tokens == sum(len(one) for _, one in kept) <= most
    for tenant, first in ranges.items():
        for other in ranges.values():
            found = store.find(tenant, [other + token_id for token_id in text], 5)
            theirs = [one for name, one in kept if name == tenant]
            if other != first:
                assert found is None, "another's text"
            elif found is not None:
                assert all(first <= token_id < first + 10 for token_id in found.token_ids)
                followed = [*(other + token_id for token_id in text[-found.matched :]), *found.token_ids]
                assert any(one[at : at + len(followed)] == followed for one in theirs for at in range(len(one))), (
                    "it stands in a response that is kept"
                )
            else:
                end = [other + token_id for token_id in text[-3:]]
                runs = [one[at : at + 3] for one in theirs for at in range(len(one) - 3)]
                assert len(end) < 3 or end not in runs, "there is nothing to be found"


def test_it_finds_as_far_as_a_text_of_its_own_would() -> None:
    rng = random.Random(3)
    for _ in range(200):
        response, end = [rng.randrange(3) for _ in range(14)], [rng.randrange(3) for _ in range(6)]
        store, one = EarlierTexts(100), Suffixes()
        store.add("a", response)
        one.extend(response)
        one.extend([9])
        one.extend(end)
        found, known = store.find("a", end, 1), one.find(1)
        if found is not None:
            assert known is not None
            assert known.matched >= found.matched
