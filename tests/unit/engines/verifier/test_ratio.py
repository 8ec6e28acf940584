"""The ratio rule on chains, from every engine; and batches that mix rules and shapes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.errors import UnsupportedBlockError
from outrider.contracts.exchanged import Deferral, DenseDraft, DraftDistribution, ScalarDraft, SparseDraft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, BlockRefused, Verified
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import (
    Client,
    assert_decided,
    assert_plain_logprobs,
    assert_same_logprobs,
    plain_decision,
    tiny_logits,
    verify_until_done,
)

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PENALISED = SamplingParams(seed=6, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4)
PROMPT = [5, 17, 42, 8, 61, 30, 2]


@pytest.mark.parametrize("params", [SAMPLED, PENALISED], ids=["sampled", "penalised"])
@pytest.mark.parametrize("sent", ["dense", "sparse"])
@pytest.mark.parametrize("bonus", [True, False])
def test_chains_decide_as_the_rule_does_on_plain_probabilities(
    make_verifier: MakeVerifier, params: SamplingParams, sent: str, *, bonus: bool
) -> None:
    logits_of, client = tiny_logits, Client("a", PROMPT, params, logprobs=2)
    engine, device = make_verifier(tiny_llama()), FakeDevice(logits_of, params.seed)
    engine.open(client.opening())
    for window in [3, 1, 5, 2, 0, 4] * 3:
        draft = device.chain(client.tokens, window)
        rows: DraftDistribution = None
        if draft:
            rows = device.dense() if sent == "dense" else device.sparse()
        block = client.block(draft, rule=AcceptanceRule.RATIO, distribution=rows, bonus=bonus)
        expected = plain_decision(logits_of, client, block)
        outcome = verify_until_done(engine, [block])[0]
        assert_decided(outcome, expected)
        client.take(block, outcome)
    lengths = {o.accepted_len for o in client.outcomes}
    assert len(lengths) > 2
    reported = [entry for outcome in client.outcomes for entry in outcome.logprobs]
    assert_plain_logprobs(reported, logits_of, client.tokens, len(PROMPT), 2)


def test_company_does_not_change_a_decision(make_verifier: MakeVerifier) -> None:
    """All rules, shapes and distributions in one batch, a cold prompt among them, against each alone."""
    logits_of = tiny_logits
    clients, blocks = [], []
    for i, params in enumerate([GREEDY, SAMPLED, PENALISED] * 3):
        client = Client(f"c{i}", PROMPT[: 1 + i % 5], params, logprobs=[None, 1][i % 2])
        device, ratio = FakeDevice(logits_of, params.seed), AcceptanceRule.RATIO
        clients.append(client)
        if params.greedy or i < 3:
            tree = device.tree(client.tokens, (2, 2), distinct=True)
            # A greedy block may say what its tokens were drawn from.
            blocks.append(client.block(tree.draft, parents=tree.parents, distribution=tree.distribution))
        elif i < 6:
            tree = device.tree(client.tokens, (3, 1), distinct=False)
            blocks.append(client.block(tree.draft, parents=tree.parents, distribution=tree.distribution, rule=ratio))
        else:
            draft = device.chain(client.tokens, 4)
            blocks.append(client.block(draft, distribution=device.scalars(draft), rule=ratio, deferral=Deferral()))
    cold = Client("cold", [3] * 30, SAMPLED)
    together, apart = make_verifier(tiny_llama()), make_verifier(tiny_llama())
    for client in [*clients, cold]:
        together.open(client.opening())
        apart.open(client.opening())
    mixed = verify_until_done(together, [*blocks, cold.block([1, 2])])
    for client, block, outcome in zip(clients, blocks, mixed, strict=False):
        alone = verify_until_done(apart, [block])[0]
        assert (outcome.accepted_path, outcome.next_token) == (alone.accepted_path, alone.next_token)
        assert_same_logprobs(outcome.logprobs, [entry for entry in alone.logprobs if entry is not None])
        assert_decided(outcome, plain_decision(logits_of, client, block))
    assert any(outcome.deferred is not None for outcome in mixed)


ONE = SparseDraft((np.array([1]),), (np.array([0.0], np.float32),))
SCALAR = ScalarDraft(np.array([7]), 8)


@pytest.mark.parametrize(
    ("params", "change", "message"),
    [
        (SAMPLED, {"rule": AcceptanceRule.GREEDY}, "greedy rule for a sampled generation"),
        (GREEDY, {"rule": AcceptanceRule.RATIO}, "the ratio rule for a greedy generation"),
        (GREEDY, {"rule": AcceptanceRule.RATIO_DISTINCT}, "the ratio_distinct rule for a greedy generation"),
        (SAMPLED, {"rule": AcceptanceRule.SEMANTIC}, "the semantic rule for a sampled generation"),
        (GREEDY, {"rule": AcceptanceRule.SEMANTIC}, "the semantic rule, for which it was given no judge"),
        (SAMPLED, {"deferral": Deferral()}, "deferred correction under the shared-noise rule"),
        (SAMPLED, {"rule": AcceptanceRule.RATIO}, "no draft distribution"),
        (SAMPLED, {"rule": AcceptanceRule.RATIO, "distribution": SCALAR}, "scalars without a deferral"),
        (
            SAMPLED,
            {"rule": AcceptanceRule.RATIO, "distribution": ONE, "parents": (-1,), "deferral": Deferral()},
            "a tree with a deferral",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_runs(
    make_verifier: MakeVerifier, params: SamplingParams, change: dict[str, object], message: str
) -> None:
    engine, client, other = make_verifier(tiny_llama()), Client("a", PROMPT, params), Client("b", PROMPT, params)
    engine.open(client.opening())
    engine.open(other.opening())
    block = replace(client.block([1]), **change)  # type: ignore[arg-type]  # fields by name
    with pytest.raises(UnsupportedBlockError, match=message):
        engine.verify([other.block(), block])
    assert engine.usage().used_blocks == 0
    assert isinstance(engine.verify([other.block(), client.block()])[1], Verified)


def dense(block: Block, **change: object) -> Block:
    return replace(block, rule=AcceptanceRule.RATIO, **change)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b: dense(b, distribution=ONE), "a draft of 2 tokens needs 2 draft rows, found 1"),
        (lambda b: dense(b, distribution=DenseDraft(np.zeros((2, VOCAB + 1), np.float32))), "need 97 logits each"),
        (lambda b: dense(b, distribution=DenseDraft(np.full((2, VOCAB), np.nan, np.float32))), "finite"),
        (
            lambda b: dense(b, distribution=SparseDraft((np.array([VOCAB]),) * 2, ONE.logits * 2)),
            "token ids in 0..96, found 97",
        ),
    ],
)
def test_a_device_that_sends_nonsense_spoils_only_its_own_block(
    make_verifier: MakeVerifier, spoil: Callable[[Block], Block], message: str
) -> None:
    engine, clients = make_verifier(tiny_llama()), [Client(name, PROMPT, SAMPLED) for name in "ab"]
    for client in clients:
        engine.open(client.opening())
    outcomes = engine.verify([spoil(clients[0].block([1, 2])), clients[1].block([1, 2])])
    assert isinstance(outcomes[0], BlockRefused)
    assert message in outcomes[0].reason
    assert isinstance(outcomes[1], Verified)


def test_a_token_its_distribution_cannot_have_drawn_is_rejected(make_verifier: MakeVerifier) -> None:
    engine, client = make_verifier(tiny_llama()), Client("a", PROMPT, SAMPLED)
    engine.open(client.opening())
    block = client.block([4], rule=AcceptanceRule.RATIO, distribution=ONE)
    assert verify_until_done(engine, [block])[0].accepted_path == ()
