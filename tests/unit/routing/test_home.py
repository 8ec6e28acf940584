"""Where conversations are at home."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outrider.routing.home import HOME_TOKENS, home, home_tokens
from outrider.routing.prefix_index import PrefixIndex

NAMES = [f"replica {number}" for number in range(8)]
KEYS = [number.to_bytes(8, "big") * 4 for number in range(4000)]


@given(st.permutations(NAMES), st.sampled_from(KEYS))
def test_all_agree_in_whatever_order_they_know_candidates(order: list[str], key: bytes) -> None:
    assert home(key, order, {}) == home(key, NAMES, {})


def test_homes_are_spread_evenly_and_who_leaves_moves_its_own_alone() -> None:
    salts: dict[str, int] = {}
    before = {key: home(key, NAMES, salts) for key in KEYS}
    shares = Counter(before.values())
    assert set(shares) == set(NAMES)
    assert all(0.8 * len(KEYS) / 8 < share < 1.2 * len(KEYS) / 8 for share in shares.values()), shares
    after = {key: home(key, NAMES[1:], salts) for key in KEYS}
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == NAMES[0]}
    moved = Counter(after[key] for key in KEYS if before[key] == NAMES[0])
    assert set(moved) == set(NAMES[1:])


def test_a_long_conversation_holds_its_home_stronger() -> None:
    assert (home_tokens(16), home_tokens(HOME_TOKENS + 16)) == (HOME_TOKENS, HOME_TOKENS + 16)


def test_what_conversations_have_in_common_tells_none_of_them() -> None:
    index: PrefixIndex[str] = PrefixIndex(100, follows=True)
    system = ["s0", "s1", "s2"]
    assert index.shared([*system, "a0", "a1"]) == 0, "of nobody else it knows"
    index.insert([*system, "a0", "a1"], "x")
    assert index.shared([*system, "a0", "a1", "a2"]) == 0, "the same conversation"
    assert index.shared([*system, "b0"]) == 3
    index.insert([*system, "b0"], "y")
    assert index.shared([*system, "a0", "a1", "a2"]) == 3
    assert index.shared(system) == 0, "it is all there is"
    assert index.shared(["c0", "c1"]) == 0
    index.forget("x")
    index.forget("y")
    assert index.shared([*system, "c0"]) == 0


def test_what_is_forgotten_is_no_longer_in_common() -> None:
    index: PrefixIndex[str] = PrefixIndex(3, follows=True)
    index.insert(["s", "a"], "x")
    index.insert(["s", "b"], "x")
    assert index.shared(["s", "c"]) == 1
    index.insert(["1", "2", "3"], "x")
    assert index.shared(["s", "c"]) == 0
