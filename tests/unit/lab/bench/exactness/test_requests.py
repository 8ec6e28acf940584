import random

from lab.bench.exactness.requests import MOST_TOKENS, Ahead, draw_draft, draw_requests

TEXTS = [list(range(first, first + 30)) for first in range(0, 90, 10)]
VOCAB = 200


def test_requests_are_of_every_kind_and_the_same_for_a_seed() -> None:
    requests = draw_requests(TEXTS, 200, 3, VOCAB)
    assert requests == draw_requests(TEXTS, 200, 3, VOCAB) != draw_requests(TEXTS, 200, 4, VOCAB)
    assert sum(one.params.greedy for one in requests) == 100
    assert len({one.name for one in requests}) == 200
    for one in requests:
        assert 10 <= len(one.prompt_ids) <= 200
        assert 16 <= one.tokens <= 40
    for feature in ("penalised", "edited"):
        assert {getattr(one.params, feature) for one in requests if one.params.greedy} == {True, False}
        assert {getattr(one.params, feature) for one in requests if not one.params.greedy} == {True, False}
    assert {one.logprobs for one in requests} == {None, 0, 3}
    assert len({one.params.top_p for one in requests}) > 1
    assert len({one.params.seed for one in requests if not one.params.greedy}) == 100


def test_drafts_are_of_every_kind() -> None:
    rng = random.Random(0)
    ahead = Ahead(truth=range(20), runners_up=range(100, 120), text=[1, 2, 3, 4, 50, 51, 2, 3, 4])
    drafts = [draw_draft(ahead, rng, VOCAB) for _ in range(600)]
    chains = [draft.token_ids for draft in drafts if draft.parents is None]
    assert {len(draft.token_ids) for draft in drafts} == set(range(MOST_TOKENS + 1))
    assert () in chains
    assert tuple(range(16)) in chains, "right"
    assert (50, 51, 2, 3, 4) in chains, "looked up"
    assert any(sum(token >= 100 for token in chain) == 1 and len(chain) == 16 for chain in chains), "misled"
    trees = [draft for draft in drafts if draft.parents is not None]
    for tree in trees:
        assert tree.parents is not None
        assert len(tree.parents) == len(tree.token_ids)
        assert all(-1 <= parent < node for node, parent in enumerate(tree.parents))
    branched = [tree.parents for tree in trees if tree.parents != tuple(range(-1, len(tree.token_ids) - 1))]
    assert len(branched) > 100


def test_nothing_is_drafted_behind_the_truths_end_but_what_does_not_need_it() -> None:
    rng = random.Random(0)
    lengths = {len(draw_draft(Ahead((), (), (1,)), rng, VOCAB).token_ids) for _ in range(100)}
    assert 0 in lengths
    assert MOST_TOKENS >= max(lengths) > 0
