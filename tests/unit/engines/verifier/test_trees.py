"""Token trees in one pass, from every engine: the output of separate chains, whatever the tree."""

import random
from collections.abc import Sequence

import pytest

from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, BlockRefused, Unfinished, Verified
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import (
    Client,
    assert_decided,
    assert_plain_logprobs,
    plain_decision,
    tiny_alone,
    tiny_logits,
    verify_until_done,
)

GREEDY = SamplingParams(temperature=0.0)
PARAMS = {
    "greedy": GREEDY,
    "greedy-penalised": SamplingParams(temperature=0.0, repetition_penalty=1.4, frequency_penalty=0.7),
    "sampled": SamplingParams(temperature=0.8, top_p=0.9, seed=5),
    "penalised": SamplingParams(seed=6, repetition_penalty=1.3, presence_penalty=0.5, logit_bias=((3, 4.0),)),
}
PROMPT = [5, 17, 42, 8, 61, 30, 2]


def random_tree(truth: Sequence[int], rng: random.Random) -> tuple[list[int], list[int]]:
    """Tokens and parents: some path is right for a while; branches before, beside and behind it are wrong."""
    draft, parents = [], []
    depths: list[int] = []
    right = -1  # last node of the right path
    for node in range(rng.randint(1, 9)):
        grow_right = rng.random() < 0.5 and (right < 0 or depths[right] < len(truth))
        parent = right if grow_right else rng.randint(-1, node - 1)
        depth = 1 if parent < 0 else depths[parent] + 1
        draft.append(truth[depth - 1] if grow_right else rng.randrange(VOCAB))
        parents.append(parent)
        depths.append(depth)
        right = node if grow_right else right
    return draft, parents


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("bonus", [True, False])
def test_output_equals_the_target_alone_for_random_trees(
    make_verifier: MakeVerifier, params: SamplingParams, *, bonus: bool
) -> None:
    """Also: every log-probability is the plain one, so the KV behind compacted paths is what a chain leaves there."""
    logits_of, truth = tiny_logits, tiny_alone(PROMPT, params, 70)
    for seed in range(4):
        rng, engine = random.Random(seed), make_verifier(tiny_llama(), blocks=60)
        client = Client("a", PROMPT, params, logprobs=3)
        engine.open(client.opening())
        scattered = 0
        while len(client.output) < 40:
            draft, parents = random_tree(truth[len(client.output) :], rng)
            block = client.block(draft, parents=parents, bonus=bonus)
            outcome = verify_until_done(engine, [block])[0]
            scattered += outcome.accepted_path != tuple(range(outcome.accepted_len))
            client.take(block, outcome)
        assert client.output == truth[: len(client.output)]
        assert scattered > 0
        assert any(o.accepted_len > 1 for o in client.outcomes)
        reported = [entry for outcome in client.outcomes for entry in outcome.logprobs]
        assert_plain_logprobs(reported, logits_of, client.tokens, len(PROMPT), 3)


@pytest.mark.parametrize("params", [PARAMS["sampled"], PARAMS["penalised"]], ids=["sampled", "penalised"])
@pytest.mark.parametrize("rule", [AcceptanceRule.RATIO, AcceptanceRule.RATIO_DISTINCT])
@pytest.mark.parametrize("bonus", [True, False])
def test_ratio_trees_decide_as_plain_passes_over_their_paths(
    make_verifier: MakeVerifier, params: SamplingParams, rule: AcceptanceRule, *, bonus: bool
) -> None:
    logits_of, client = tiny_logits, Client("a", PROMPT, params)
    engine, device = make_verifier(tiny_llama()), FakeDevice(logits_of, params.seed)
    engine.open(client.opening())
    accepted = []
    for expansion in [(2, 2), (3,), (1, 2, 2), (4, 1), (2, 1, 1)] * 3:
        tree = device.tree(client.tokens, expansion, distinct=rule is AcceptanceRule.RATIO_DISTINCT)
        block = client.block(tree.draft, parents=tree.parents, rule=rule, distribution=tree.distribution, bonus=bonus)
        expected = plain_decision(logits_of, client, block)
        outcome = verify_until_done(engine, [block])[0]
        assert_decided(outcome, expected)
        accepted.append(outcome.accepted_len)
        client.take(block, outcome)
    assert len(set(accepted)) > 1


def test_forced_tokens_come_before_the_tree(make_verifier: MakeVerifier) -> None:
    for params in PARAMS.values():
        logits_of, client = tiny_logits, Client("a", PROMPT, params, logprobs=0)
        engine = make_verifier(tiny_llama(), prefill_chunk_tokens=5)
        engine.open(client.opening())
        forced = [9, 77, 9, 4, 50, 51, 52, 53]
        bare = plain_decision(logits_of, client, client.block(forced=forced)).token_after
        block = client.block([1, bare or 0, 2, 3], parents=[-1, -1, 1, 0], forced=forced)
        expected = plain_decision(logits_of, client, block)
        outcome = verify_until_done(engine, [block])[0]
        assert_decided(outcome, expected)
        assert outcome.accepted_path[:1] == (1,)
        client.take(block, outcome)
        assert_plain_logprobs(outcome.logprobs, logits_of, client.tokens, len(PROMPT), 0)


def test_a_tree_takes_the_positions_of_its_longest_path(make_verifier: MakeVerifier) -> None:
    """At the end of the context: a wide tree that fits by depth is verified, one that does not fit is refused."""
    client = Client("a", [7] * 252, GREEDY)
    engine = make_verifier(tiny_llama())
    engine.open(client.opening())
    wide = client.block([1, 2, 3, 4, 5, 6], parents=[-1, -1, -1, 0, 1, 2])
    deep = client.block([1, 2, 3, 4], parents=[-1, 0, 1, 2])
    refused = engine.verify([deep])[0]
    assert isinstance(refused, BlockRefused)
    assert "needs 257 positions, found a limit of 256" in refused.reason
    assert isinstance(verify_until_done(engine, [wide])[0], Verified)
    small, slots = make_verifier(tiny_llama(), blocks=4), 4 * make_verifier.block_tokens
    other = Client("b", [7] * (slots - 6), GREEDY)
    small.open(other.opening())
    refused = small.verify([other.block([1] * 7, parents=[-1] * 7)])[0]
    assert isinstance(refused, BlockRefused)
    assert f"needs {slots + 1} KV slots, found {slots}; send a smaller tree" in refused.reason


@pytest.mark.parametrize("parents", [[-1, 1], [-1, -2], [0, 0], [-1]])
def test_what_is_no_tree_is_refused_alone(make_verifier: MakeVerifier, parents: list[int]) -> None:
    engine, clients = make_verifier(tiny_llama()), [Client(name, PROMPT, GREEDY) for name in "ab"]
    for client in clients:
        engine.open(client.opening())
    outcomes = engine.verify([clients[0].block([1, 2], parents=parents), clients[1].block([1, 2], parents=[-1, -1])])
    assert isinstance(outcomes[0], BlockRefused)
    assert "a tree of 2 nodes needs one parent each" in outcomes[0].reason
    assert isinstance(outcomes[1], Verified)


def test_a_tree_beside_a_long_prompt_lends_it_no_room(make_verifier: MakeVerifier) -> None:
    """A chunk's size is the same whatever shape the draft beside it has."""
    engine = make_verifier(tiny_llama(), prefill_chunk_tokens=16)
    warm, cold = Client("warm", PROMPT, GREEDY), Client("cold", [7] * 100, GREEDY)
    for client in (warm, cold):
        engine.open(client.opening())
    first = warm.block()
    warm.take(first, verify_until_done(engine, [first])[0])
    star = warm.block(range(6), parents=[-1] * 6)
    warm_outcome, cold_outcome = engine.verify([star, cold.block()])
    assert isinstance(warm_outcome, Verified)
    assert isinstance(cold_outcome, Unfinished)
    assert cold_outcome.remaining_tokens == 100 - 16
