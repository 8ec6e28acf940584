"""Where conversations are at home."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outrider.routing.conversation_hash import hashed_to, nearest

NAMES = [f"replica {number}" for number in range(8)]
KEYS = [number.to_bytes(8, "big") * 4 for number in range(4000)]


@given(st.permutations(NAMES), st.sampled_from(KEYS))
def test_all_agree_in_whatever_order_they_know_candidates(order: list[str], key: bytes) -> None:
    assert hashed_to(key, order, {}) == hashed_to(key, NAMES, {})


def test_homes_are_spread_evenly_and_who_leaves_moves_its_own_alone() -> None:
    salts: dict[str, int] = {}
    before = {key: hashed_to(key, NAMES, salts) for key in KEYS}
    shares = Counter(before.values())
    assert set(shares) == set(NAMES)
    assert all(0.8 * len(KEYS) / 8 < share < 1.2 * len(KEYS) / 8 for share in shares.values()), shares
    after = {key: hashed_to(key, NAMES[1:], salts) for key in KEYS}
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == NAMES[0]}
    moved = Counter(after[key] for key in KEYS if before[key] == NAMES[0])
    assert set(moved) == set(NAMES[1:])


def test_fewer_of_the_nearest_are_among_more_and_the_first_is_home() -> None:
    for key in KEYS[:50]:
        order = nearest(key, NAMES, {}, len(NAMES))
        assert order[0] == hashed_to(key, NAMES, {})
        assert [nearest(key, NAMES, {}, count) for count in range(1, 9)] == [order[:count] for count in range(1, 9)]


@given(st.sampled_from(KEYS), st.integers(33, 80), st.integers(1, 9))
def test_many_agree_with_few(key: bytes, many: int, count: int) -> None:
    """Who is nearest of many, which are hashed all at once, is of any few of them as well."""
    names = [f"replica {number}" for number in range(many)]
    salts: dict[str, int] = {}
    found = nearest(key, names, salts, count)
    assert found[0] == hashed_to(key, names, salts)
    parts = [names[first : first + 20] for first in range(0, many, 20)]
    firsts = [name for part in parts for name in nearest(key, part, {}, min(count, len(part)))]
    assert found == nearest(key, firsts, {}, count)
