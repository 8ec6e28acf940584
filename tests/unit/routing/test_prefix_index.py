"""Who has which prefix."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.routing.prefix_index import PrefixIndex, leading_digests

BLOCK = 4
sequences = st.lists(st.integers(0, 2), max_size=20)


def common_blocks(a: list[int], b: list[int]) -> int:
    blocks = 0
    while (blocks + 1) * BLOCK <= min(len(a), len(b)) and a[: (blocks + 1) * BLOCK] == b[: (blocks + 1) * BLOCK]:
        blocks += 1
    return blocks


@given(held=st.dictionaries(st.sampled_from("xyz"), sequences), asked=sequences)
def test_a_holder_matches_the_blocks_it_has_in_common(held: dict[str, list[int]], asked: list[int]) -> None:
    index: PrefixIndex[str] = PrefixIndex(1000)
    for holder, tokens in held.items():
        index.insert(leading_digests(tokens, BLOCK), holder)
    expected = {holder: common_blocks(tokens, asked) for holder, tokens in held.items()}
    assert index.matches(leading_digests(asked, BLOCK)) == {h: n for h, n in expected.items() if n}


@given(st.lists(sequences, max_size=30))
def test_it_stays_within_its_bound_and_never_promises_a_gap(inserted: list[list[int]]) -> None:
    index: PrefixIndex[str] = PrefixIndex(5)
    for tokens in inserted:
        digests = leading_digests(tokens, BLOCK)
        index.insert(digests, "x")
        assert len(index) <= 5
        assert index.matches(digests).get("x", 0) == min(len(digests), 5), "the latest is remembered from its start"


def test_who_is_gone_is_forgotten() -> None:
    index: PrefixIndex[str] = PrefixIndex(100)
    digests = leading_digests(list(range(8)), BLOCK)
    index.insert(digests, "x")
    index.insert(digests[:1], "y")
    index.forget("x")
    assert index.matches(digests) == {"y": 1}
    assert len(index) == 1


def test_a_prefix_is_followed_within_its_salt_alone() -> None:
    index: PrefixIndex[str] = PrefixIndex(100)
    tokens = list(range(3 * BLOCK))
    index.insert(leading_digests(tokens, BLOCK, b"mine"), "x")
    assert index.matches(leading_digests(tokens, BLOCK, b"mine")) == {"x": 3}
    assert (
        index.matches(leading_digests(tokens, BLOCK, b"yours")) == index.matches(leading_digests(tokens, BLOCK)) == {}
    )


def test_it_tells_where_others_went_on_differently() -> None:
    index: PrefixIndex[str] = PrefixIndex(100)
    system = ["s0", "s1", "s2"]
    assert index.branches([*system, "a0", "a1"]) == [], "of nobody else it knows"
    index.insert([*system, "a0", "a1"], "x")
    assert index.branches([*system, "a0", "a1", "a2"]) == [], "the same conversation"
    assert index.branches([*system, "b0"]) == [3]
    index.insert([*system, "b0"], "y")
    assert index.branches([*system, "a0", "a1", "a2"]) == [3]
    assert index.branches(system) == [], "it is all there is"
    assert index.branches(["c0", "c1"]) == []
    index.insert(["s0", "t1", "t2"], "x")
    assert index.branches([*system, "a0"]) == [1, 3]
    assert index.branches(["s0", "t1", "u2"]) == [1, 2]
    index.forget("x")
    index.forget("y")
    assert index.branches([*system, "c0"]) == []


def test_a_branch_that_is_forgotten_is_none() -> None:
    index: PrefixIndex[str] = PrefixIndex(3)
    index.insert(["s", "a"], "x")
    index.insert(["s", "b"], "x")
    assert index.branches(["s", "c"]) == [1]
    index.insert(["1", "2", "3"], "x")
    assert index.branches(["s", "c"]) == []
