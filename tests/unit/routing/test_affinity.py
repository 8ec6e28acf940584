"""Where ingresses would rather send conversations, and that they agree."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from outrider.routing.affinity import Affinity
from outrider.routing.conversation_hash import hashed_to, nearest
from outrider.routing.prefix_index import BLOCK_TOKENS, MAX_BLOCKS, MAX_HOLDERS, PrefixIndex

NAMES = [f"replica {number}" for number in range(40)]


def digests_of(*blocks: str) -> list[bytes]:
    return [hashlib.blake2b(block.encode()).digest() for block in blocks]


SYSTEM = digests_of(*(f"system {number}" for number in range(5)))


def said(conversation: object, blocks: int = 3) -> list[bytes]:
    return [*SYSTEM, *digests_of(*(f"{conversation}, {number}" for number in range(blocks)))]


def home_of(affinity: Affinity[str], conversation: object, names: list[str] = NAMES) -> str:
    """Who counts for what is its own, beside what it knows of what others begin with too."""
    digests, whole = said(conversation), BLOCK_TOKENS * len(SYSTEM)
    (found,) = (name for name, tokens in affinity.tokens(digests, names).items() if tokens != whole)
    return found


@given(
    st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(1, 4), st.sampled_from(NAMES)), max_size=20),
    st.sampled_from("abcdefgh"),
    st.integers(1, 4),
)
def test_who_has_part_of_a_conversation_counts_for_that_alone(
    sent: list[tuple[str, int, str]], asked: str, blocks: int
) -> None:
    affinity, known = Affinity[str](), PrefixIndex[str](MAX_BLOCKS)
    for conversation, so_many, name in sent:
        affinity.note(said(conversation, so_many), name)
        known.insert(said(conversation, so_many), name)
    digests = said(asked, blocks)
    tokens = affinity.tokens(digests, NAMES)
    cached = {name: held * BLOCK_TOKENS for name, held in known.matches(digests).items()}
    more = {name: tokens[name] - cached.get(name, 0) for name in tokens if tokens[name] != cached.get(name, 0)}
    if any(conversation == asked for conversation, _, _ in sent):
        assert tokens == cached
    else:
        assert list(more.values()) == [BLOCK_TOKENS * (blocks if sent else len(digests))], (
            "one home, for what is its own"
        )
        assert cached.keys() <= tokens.keys()


@given(st.permutations(range(6)), st.permutations(range(6)), st.permutations(NAMES))
def test_ingresses_that_know_different_conversations_agree(one: list[int], other: list[int], names: list[str]) -> None:
    """As long as what these share is at as many coordinators for both."""
    ingresses = Affinity[str](), Affinity[str]()
    for ingress, conversations in zip(ingresses, (one[:4], other[:4]), strict=True):
        for nth, conversation in enumerate(conversations):
            ingress.note(said(conversation), NAMES[nth % 2])
    for conversation in range(6, 30):
        assert home_of(ingresses[0], conversation) == home_of(ingresses[1], conversation, names)


def test_conversations_that_begin_alike_are_at_home_at_as_many_as_load_has_driven_them_to() -> None:
    affinity = Affinity[str]()
    found, expected = list[int](), list[int]()
    for holders in range(MAX_HOLDERS + 1):
        hashing = {home_of(affinity, f"asked {number}") for number in range(500)}
        found.append(len(hashing))
        expected.append(1 if holders < 2 else 1 << (holders - 1).bit_length() if holders < MAX_HOLDERS else len(NAMES))
        affinity.note(said(f"sent {holders}"), NAMES[holders])
    assert found == expected


def test_a_system_prompt_stays_where_it_was_when_it_turns_out_to_be_one() -> None:
    affinity = Affinity[str]()
    begins = nearest(SYSTEM[0], NAMES, {}, 1)
    for conversation in range(10):
        assert [home_of(affinity, conversation)] == begins
        affinity.note(said(conversation), begins[0])


def test_what_all_prompts_begin_with_does_not_bring_them_to_one() -> None:
    """A chat template's first block, say: each system prompt behind it has a home of its own."""
    affinity = Affinity[str]()
    for number in range(MAX_HOLDERS):
        affinity.note(digests_of("template", f"prompt {number}", "text"), NAMES[number])
    for number in range(100, 150):
        prompt = f"prompt {number}"
        turn, own = digests_of("template", prompt, "who", "said"), hashed_to(digests_of(prompt)[0], NAMES, {})
        tokens = affinity.tokens(turn, NAMES)
        assert tokens[own] == max(tokens.values())
        affinity.note(turn, own)
        tokens = affinity.tokens(digests_of("template", prompt, "another", "question"), NAMES)
        assert tokens[own] == max(tokens.values())


def test_whoever_is_gone_is_nobody_s_home_and_short_requests_have_none() -> None:
    affinity = Affinity[str]()
    affinity.note(said("a"), NAMES[0])
    affinity.forget(NAMES[0])
    left = NAMES[1:]
    assert affinity.tokens(said("a"), left).keys() <= set(left)
    assert affinity.tokens([], NAMES) == affinity.tokens(said("a"), []) == {}


def test_a_key_decides_where_no_prefix_does() -> None:
    """Of any ingress: whatever the prompts are, even one too short for a block."""
    affinity, other = Affinity[str](), Affinity[str]()
    (home,) = affinity.tokens([], NAMES, b"a cache key of 16")
    assert list(other.tokens(said("a"), NAMES, b"a cache key of 16")) == [home]
    homes = {next(iter(affinity.tokens([], NAMES, bytes([i]) * 16))) for i in range(64)}
    assert len(homes) > len(NAMES) / 2
    elsewhere = next(name for name in NAMES if name != home)
    affinity.note(said("b"), elsewhere)
    assert list(affinity.tokens(said("b"), NAMES, b"a cache key of 16")) == [elsewhere], "its prefix is there"
    assert affinity.tokens([], NAMES) == {}
