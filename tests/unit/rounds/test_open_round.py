"""What is left of a draft behind what was committed meanwhile, and what is learned of it."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.autonomous_runs import overtaken
from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.verifying import Block
from outrider.rounds.open_round import OpenRound

TOKENS = st.integers(1, 3)


def accepted_of(draft: tuple[int, ...], truth: tuple[int, ...]) -> int:
    return next((i for i, token in enumerate(draft) if token != truth[i]), len(draft))


@given(
    draft=st.lists(TOKENS, min_size=1, max_size=6).map(tuple),
    truth=st.lists(TOKENS, min_size=14, max_size=14).map(tuple),
    before=st.integers(0, 4),
    behind=st.lists(st.integers(0, 2), max_size=4),
)
def test_the_verdict_is_that_of_the_whole_draft(
    draft: tuple[int, ...], truth: tuple[int, ...], before: int, behind: list[int]
) -> None:
    """However much of the target's own tokens came first, before the block was made and while it was on its way."""
    round_ = OpenRound(1, 0.0, DraftPlan("token_ids", len(draft)), survivals=tuple(0.5**i for i in range(1, 7)))
    round_.draft = Draft("g", 1, 10, draft)
    committed = truth[:before]
    round_.overtaken(committed)
    block = Block("g", 1, 10 + before, extend_prefix_hash(EMPTY_PREFIX_HASH, committed), draft=round_.draft.token_ids)
    round_.block = block
    for tokens in behind:
        more = truth[before : before + tokens]
        round_.overtaken(more)
        before += tokens
    assert round_.verified == overtaken(block, truth[block.position - 10 : before])
    left = round_.verified.draft
    accepted = accepted_of(left, truth[before:])
    assert round_.equal_tokens + accepted == accepted_of(draft, truth)
    assert round_.equal_tokens + len(left) + round_.wrong_tokens == len(draft)
    assert round_.trimmed_tokens == round_.equal_tokens
    assert not left or left == draft[before:]
    assert round_.verified.prefix_hash == extend_prefix_hash(EMPTY_PREFIX_HASH, truth[:before])
    if before and left:
        assert round_.survivals[: len(left)] == tuple(0.5**i for i in range(1, 7))[: len(left)]
