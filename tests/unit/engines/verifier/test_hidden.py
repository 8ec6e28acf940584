"""The target's hidden states at a block's own rows, from every engine, rule and shape."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.exchanged import Deferral, DraftDistribution
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, Detail, Verified
from tests.unit.engines.conftest import MakeVerifier, tiny_llama
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import Client, paths_of, plain_logits_of, verify_until_done
from tests.unit.engines.semantic_device import draft_with, plain_rows

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PROMPT = [5, 17, 42, 8, 61, 30, 2]
RATIO = AcceptanceRule.RATIO
HIDDEN = frozenset({Detail.HIDDEN})


def assert_hidden(outcome: Verified, client: Client, block: Block) -> None:
    """One state behind the prefix and one behind each node, each as if its path stood alone."""
    context = (*client.tokens, *block.forced)
    paths = paths_of(replace(block, bonus=True))
    expected = np.stack([plain_rows((*context, *path))[1][-1] for path in paths])
    assert outcome.hidden is not None
    assert outcome.hidden.dtype == np.float32
    np.testing.assert_allclose(outcome.hidden, expected, atol=1e-3)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("bonus", [True, False])
def test_chains_tell_the_state_at_each_row_whatever_is_accepted(
    make_verifier: MakeVerifier, params: SamplingParams, *, bonus: bool
) -> None:
    """The decision is that of the same block without them, though a chain without bonus token gets one row more."""
    engine, client, plain = make_verifier(tiny_llama()), Client("a", PROMPT, params), Client("b", PROMPT, params)
    for one in (client, plain):
        engine.open(one.opening())
    for window, forced in [(3, ()), (0, ()), (2, (4, 9)), (1, ()), (0, (7,)), (5, ())]:
        draft = draft_with(client, [i == 2 for i in range(window)], forced)
        block = replace(client.block(draft, forced=forced, bonus=bonus), details=HIDDEN)
        other = plain.block(draft, forced=forced, bonus=bonus)
        outcome, without = verify_until_done(engine, [block, other])
        assert_hidden(outcome, client, block)
        assert without.hidden is None
        assert (outcome.accepted_path, outcome.next_token) == (without.accepted_path, without.next_token)
        client.take(block, outcome)
        plain.take(other, without)
    assert client.tokens == plain.tokens


@pytest.mark.parametrize("rule", [None, RATIO, AcceptanceRule.RATIO_DISTINCT])
def test_trees_tell_them_in_the_order_of_their_nodes(make_verifier: MakeVerifier, rule: AcceptanceRule | None) -> None:
    engine, client = make_verifier(tiny_llama()), Client("a", PROMPT, SAMPLED)
    device = FakeDevice(plain_logits_of(tiny_llama()), SAMPLED.seed)
    engine.open(client.opening())
    for expansion in [(2, 2), (3,), (1, 2, 1)]:
        tree = device.tree(client.tokens, expansion, distinct=rule is not RATIO)
        sent: DraftDistribution = None if rule is None else tree.distribution
        block = client.block(tree.draft, parents=tree.parents, rule=rule, distribution=sent)
        block = replace(block, details=HIDDEN)
        outcome = verify_until_done(engine, [block])[0]
        assert_hidden(outcome, client, block)
        client.take(block, outcome)


@pytest.mark.parametrize("deferral", [None, Deferral()])
def test_ratio_chains_tell_them_too(make_verifier: MakeVerifier, deferral: Deferral | None) -> None:
    """Behind a deferred correction the first row's logits are kept, but not its hidden state."""
    engine, client = make_verifier(tiny_llama()), Client("a", PROMPT, SAMPLED)
    device = FakeDevice(plain_logits_of(tiny_llama()), SAMPLED.seed)
    engine.open(client.opening())
    kept = 0
    for window in [3, 1, 4, 0, 2] * 3:
        kept += engine.kept_row_bytes > 0
        draft = device.chain(client.tokens, window)
        rows: DraftDistribution = None
        if draft:
            rows = device.dense() if deferral is None else device.scalars(draft)
        block = client.block(draft, rule=RATIO, distribution=rows, deferral=deferral, bonus=window != 1)
        block = replace(block, details=HIDDEN)
        outcome = verify_until_done(engine, [block])[0]
        assert_hidden(outcome, client, block)
        client.take(block, outcome)
    assert (kept > 2) is (deferral is not None)


def test_company_and_chunks_do_not_matter(make_verifier: MakeVerifier) -> None:
    """A cold prompt in chunks, a tree and chains that ask for nothing, in the same passes."""
    engine = make_verifier(tiny_llama(), prefill_chunk_tokens=max(16, make_verifier.block_tokens))
    device = FakeDevice(plain_logits_of(tiny_llama()), SAMPLED.seed)
    cold, tree = Client("cold", [3, 7] * 50, GREEDY), Client("tree", PROMPT, SAMPLED)
    silent, warm = Client("silent", PROMPT, GREEDY), Client("warm", PROMPT, GREEDY)
    for client in (cold, tree, silent, warm):
        engine.open(client.opening())
    drawn = device.tree(tree.tokens, (2, 2), distinct=True)
    blocks = [
        cold.block([1, 2]),
        silent.block([1, 2, 3]),
        tree.block(drawn.draft, parents=drawn.parents),
        warm.block([4], bonus=False),
    ]
    asked = [block if block.generation == "silent" else replace(block, details=HIDDEN) for block in blocks]
    outcomes = verify_until_done(engine, asked)
    for client, block, outcome in zip((cold, silent, tree, warm), asked, outcomes, strict=True):
        if client is silent:
            assert outcome.hidden is None
        else:
            assert_hidden(outcome, client, block)


def test_the_same_round_again_and_a_copy_of_it_are_equal(make_verifier: MakeVerifier) -> None:
    """By value, arrays included: outcomes are answered from memory, and cross processes."""
    engine, client = make_verifier(tiny_llama()), Client("a", PROMPT, GREEDY)
    engine.open(client.opening())
    block = replace(client.block([1, 2]), details=HIDDEN)
    outcome = verify_until_done(engine, [block])[0]
    assert engine.verify([block]) == [outcome]
    assert pickle.loads(pickle.dumps((block, outcome))) == (block, outcome)
    assert outcome.hidden is not None
    assert replace(outcome, hidden=outcome.hidden + 1) != outcome
    assert replace(outcome, hidden=None) != outcome
