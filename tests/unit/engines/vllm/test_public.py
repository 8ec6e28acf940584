"""The public-interface fallback: transformers' rows and outputs, whatever vLLM's own cache and scheduler make of it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from outrider.contracts.errors import EngineUnavailableError, ParameterError
from outrider.contracts.exchanged import Deferral
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Verified
from outrider.engines.forward_model import BlockCopy, Segment
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.vllm.public import PublicForward
from tests.unit.engines.fake_device import FakeDevice
from tests.unit.engines.reference import (
    Client,
    assert_decided,
    generate,
    mixed_draft,
    plain_decision,
    plain_logits_of,
    target_alone,
    verify_until_done,
)
from tests.unit.engines.vllm.conftest import VOCAB, MakeSettings

SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5)
PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SAMPLED,
    "penalised": SamplingParams(temperature=1.0, seed=6, repetition_penalty=1.3, logit_bias=((3, 4.0),)),
}
PROMPT = [5, 17, 42, 8, 61, 30, 2]


@pytest.fixture(scope="module")
def public(make_settings: MakeSettings) -> Iterator[PublicForward]:
    """A started engine of 64 blocks, 6 requests and 192 tokens a step."""
    model = PublicForward(make_settings())
    yield model
    model.close()
    model.close()


@pytest.fixture
def engine(public: PublicForward) -> PagedVerifier:
    """A verifier that knows nothing of those before it; vLLM's cache does."""
    return PagedVerifier(
        public, vocab_size=VOCAB, max_context_tokens=768, prefill_chunk_tokens=40, kept_rows_bytes=1 << 20
    )


def tokens_of(length: int, seed: int) -> list[int]:
    """Random text."""
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def segment(tokens: list[int], start: int, rows: int) -> Segment:
    """The tokens from ``start`` on; block numbers are of no use here."""
    return Segment(tokens[start:], start, [], rows, before=tokens[:start])


@torch.inference_mode()
def assert_rows(public: PublicForward, model: LlamaForCausalLM, segments: list[Segment]) -> None:
    """What a pass gives are the last rows of one plain forward pass for each segment, padding of the head included."""
    result = public.forward(segments)
    rows = [torch.empty(0, VOCAB + 7)]
    for s in segments:
        logits = model(input_ids=torch.tensor([[*s.before, *s.token_ids]]), use_cache=False).logits[0]
        rows.append(logits[len(logits) - s.logit_rows :])
    expected = torch.cat(rows)
    assert result.hidden is None
    assert (result.logits.shape, result.logits.dtype) == (expected.shape, torch.float32)
    torch.testing.assert_close(result.logits, expected, atol=1e-4, rtol=0)


def test_rows_are_those_of_a_plain_pass(public: PublicForward, tiny: LlamaForCausalLM) -> None:
    """Ragged, in the order wanted, more requests than a step takes; cold, then over vLLM's cache."""
    texts = [tokens_of(length, seed) for seed, length in enumerate((1, 5, 31, 32, 33, 70, 150))]
    segments = [segment(text, len(text) // 2, min(len(text) - len(text) // 2, 4)) for text in texts]
    assert_rows(public, tiny, segments)
    assert_rows(public, tiny, segments[::-1])
    longer = [[*text, *tokens_of(9, 7)] for text in texts]
    assert_rows(public, tiny, [segment(text, len(text) - 9, 9) for text in longer])


@pytest.mark.parametrize("rows", [0, 1, 2, 20])
def test_any_number_of_rows(public: PublicForward, tiny: LlamaForCausalLM, rows: int) -> None:
    texts = [tokens_of(20, 100 + rows), tokens_of(3, 200 + rows)]
    assert_rows(public, tiny, [segment(texts[0], 0, rows), segment(texts[1], 0, 0)])
    assert_rows(public, tiny, [segment(texts[1], 0, 0), segment(texts[0], 0, rows), segment(texts[1], 2, 1)])


def test_a_prompt_longer_than_a_step_gives_only_its_last_rows(public: PublicForward, tiny: LlamaForCausalLM) -> None:
    """A row is shown behind each chunk, and only the last means anything."""
    assert_rows(public, tiny, [segment(tokens_of(700, 8), 0, 3), segment(tokens_of(9, 9), 0, 2)])


def test_what_vllm_evicted_is_computed_again(public: PublicForward, tiny: LlamaForCausalLM) -> None:
    first = tokens_of(300, 10)
    assert_rows(public, tiny, [segment(first, 0, 1)])
    for seed in range(11, 16):  # 2,500 tokens through 2,016 positions of KV
        public.forward([segment(tokens_of(500, seed), 0, 0)])
    assert_rows(public, tiny, [segment(first, 298, 2)])


def test_copies_and_block_numbers_mean_nothing(public: PublicForward, tiny: LlamaForCausalLM) -> None:
    text = tokens_of(40, 16)
    rows = public.forward([Segment(text[30:], 30, [3, 900], 2, before=text[:30])], [BlockCopy(0, 999)]).logits
    with torch.inference_mode():
        expected = tiny(input_ids=torch.tensor([text]), use_cache=False).logits[0, -2:]
    torch.testing.assert_close(rows, expected, atol=1e-4, rtol=0)


def test_what_it_cannot_do_is_said(public: PublicForward) -> None:
    assert not public.gives_hidden
    with pytest.raises(ValueError, match="no hidden states"):
        public.forward([segment(PROMPT, 0, 1)], want_hidden=True)
    with pytest.raises(ValueError, match="all 4 tokens before a segment, found 0"):
        public.forward([Segment([1], 4, [0], 1)])


def test_blocks_are_vllms_in_number(public: PublicForward) -> None:
    assert (public.total_blocks, public.block_tokens) == (63, 32)
    assert (public.no_logits.shape, public.no_logits.dtype) == ((0, VOCAB + 7), torch.float32)


def test_options_vllm_lacks_are_refused(make_settings: MakeSettings) -> None:
    with pytest.raises(ParameterError, match="no_such_option"):
        PublicForward(make_settings(options={"no_such_option": 1}))


def test_a_vllm_that_does_not_start_is_named_with_its_reason(make_settings: MakeSettings, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match=rf"serves {tmp_path} .* found that it does not: \w+"):
        PublicForward(make_settings(folder=tmp_path))


def test_generations_equal_the_target_alone(engine: PagedVerifier, tiny: LlamaForCausalLM) -> None:
    """Greedy, sampled and penalised in one batch, one of them cold for several passes."""
    rng = random.Random(1)
    clients = [
        Client(name, tokens_of(length, 20 + length), params)
        for (name, params), length in zip(PARAMS.items(), (30, 7, 110), strict=True)
    ]
    truths = {c.name: target_alone(tiny, c.prompt, c.params, 40) for c in clients}
    generate(engine, clients, lambda c: mixed_draft(truths[c.name][len(c.output) :], rng.randint(0, 8), rng), 24)
    for client in clients:
        assert client.output == truths[client.name][: len(client.output)]
        assert any(outcome.accepted_len > 1 for outcome in client.outcomes)


@pytest.mark.parametrize("rule", [AcceptanceRule.SHARED_NOISE, AcceptanceRule.RATIO])
def test_sampled_trees_decide_as_plain_passes_over_their_paths(
    engine: PagedVerifier, tiny: LlamaForCausalLM, rule: AcceptanceRule
) -> None:
    logits_of, client = plain_logits_of(tiny), Client("a", PROMPT, SAMPLED)
    device = FakeDevice(logits_of, SAMPLED.seed)
    engine.open(client.opening())
    for expansion in [(2, 2), (3,), (1, 2, 2), (4, 1)] * 2:
        tree = device.tree(client.tokens, expansion, distinct=False)
        sent = tree.distribution if rule is AcceptanceRule.RATIO else None
        block = client.block(tree.draft, parents=tree.parents, rule=rule, distribution=sent)
        outcome = verify_until_done(engine, [block])[0]
        assert_decided(outcome, plain_decision(logits_of, client, block))
        client.take(block, outcome)
    paths = [outcome.accepted_path for outcome in client.outcomes]
    assert any(path != tuple(range(len(path))) for path in paths), "no path but first ones was accepted"


def test_a_device_draws_its_correction_from_the_plain_row(engine: PagedVerifier, tiny: LlamaForCausalLM) -> None:
    logits_of, client = plain_logits_of(tiny), Client("a", PROMPT, SAMPLED)
    device = FakeDevice(logits_of, SAMPLED.seed)
    engine.open(client.opening())
    forced: tuple[int, ...] = ()
    corrections = 0
    for _ in range(12):
        draft = device.chain([*client.tokens, *forced], 3)
        sent = device.scalars(draft)
        block = client.block(draft, forced=forced, rule=AcceptanceRule.RATIO, distribution=sent, deferral=Deferral())
        outcome: Verified = verify_until_done(engine, [block])[0]
        assert_decided(outcome, plain_decision(logits_of, client, block))
        client.take(block, outcome)
        forced = ()
        if outcome.deferred is not None:
            token_id = device.correct(outcome.deferred, outcome.accepted_len, len(client.tokens))
            assert token_id is not None
            forced, corrections = (token_id,), corrections + 1
    assert corrections > 1
