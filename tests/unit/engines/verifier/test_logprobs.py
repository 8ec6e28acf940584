"""Log-probabilities of output and prompt, from every engine: those of plain transformers, whatever the rounds."""

import random
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel

from outrider.contracts.requests import SamplingParams, TokenLogprobs
from outrider.contracts.verifying import Unfinished, Verified
from tests.unit.engines.conftest import VOCAB, MakeVerifier, tiny_llama
from tests.unit.engines.reference import (
    Client,
    assert_same_logprobs,
    expected_logprobs,
    generate,
    mixed_draft,
    tiny_alone,
    verify_until_done,
)

PROMPT = [5, 17, 42, 8, 61, 30, 2]
PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=0.6, top_p=0.8, top_k=20, seed=5),
    "edited": SamplingParams(
        temperature=1.2,
        seed=6,
        repetition_penalty=1.5,
        frequency_penalty=0.6,
        logit_bias=((3, 6.0), (9, -100.0)),
        withheld_ids=(4, 11),
        withheld_until=15,
    ),
}


@torch.inference_mode()
def plain_logits(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    model.set_attn_implementation("eager")
    logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
    return logits[0, :-1, :VOCAB]


def check(client: Client) -> None:
    """All that was reported to a client, against one forward pass over its sequence."""
    logits, first = plain_logits(tiny_llama(), client.tokens), len(client.prompt)
    reported: list[TokenLogprobs | None] = [entry for outcome in client.outcomes for entry in outcome.logprobs]
    if client.logprobs is None:
        assert reported == []
    else:
        assert_same_logprobs(reported, expected_logprobs(logits[first - 1 :], client.output, client.logprobs))
    prompts = [outcome.prompt_logprobs for outcome in client.outcomes]
    assert not any(prompts[1:])
    if client.prompt_logprobs:
        assert prompts[0][0] is None
        assert_same_logprobs(
            prompts[0][1:], expected_logprobs(logits[: first - 1], client.prompt[1:], client.logprobs or 0)
        )
        assert client.outcomes[0].cached_tokens == 0
    else:
        assert prompts[0] == ()


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("window", [0, 1, 3, 8])
def test_logprobs_are_the_targets_own_for_every_window(
    make_verifier: MakeVerifier, params: SamplingParams, window: int
) -> None:
    truth, rng = tiny_alone(PROMPT, params, 40), random.Random(window)
    client = Client("a", PROMPT, params, logprobs=5, prompt_logprobs=True)
    generate(make_verifier(tiny_llama()), [client], lambda c: mixed_draft(truth[len(c.output) :], window, rng), 20)
    assert client.output == truth[: len(client.output)]
    check(client)


@pytest.mark.parametrize(("positions", "chunk"), [(800, 5), (800, 64), (120, 7)])
def test_neither_company_nor_chunks_nor_evictions_change_them(
    make_verifier: MakeVerifier, positions: int, chunk: int
) -> None:
    """Long and short prompts, some alike; who asks for nothing gets nothing."""
    rng = random.Random(chunk)
    engine = make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(positions), prefill_chunk_tokens=chunk)
    system = [rng.randrange(VOCAB) for _ in range(20)]
    clients = [
        Client(
            f"c{i}",
            [*system[: rng.choice([1, 9, 20])], *(rng.randrange(VOCAB) for _ in range(rng.randint(0, 30)))],
            params,
            logprobs=[None, 0, 4][i % 3],
            prompt_logprobs=i % 2 == 0,
        )
        for i, params in enumerate([*PARAMS.values()] * 2)
    ]
    truths = {c.name: tiny_alone(c.prompt, c.params, 24) for c in clients}
    generate(engine, clients, lambda c: mixed_draft(truths[c.name][len(c.output) :], rng.randint(0, 5), rng), 12)
    assert (engine.usage().evictions > 0) == (positions == 120)
    for client in clients:
        assert client.output == truths[client.name][: len(client.output)]
        check(client)


@pytest.mark.parametrize("passes", [1, 3, 6])
def test_a_prompt_evicted_in_the_middle_is_scored_to_its_end(make_verifier: MakeVerifier, passes: int) -> None:
    """An older generation takes the memory away; what is computed again is not reported twice."""
    engine = make_verifier(tiny_llama(), blocks=make_verifier.blocks_of(96), prefill_chunk_tokens=8)
    old = Client("old", [9] * 60, PARAMS["greedy"])
    young = Client("young", random.Random(1).choices(range(VOCAB), k=70), PARAMS["sampled"], logprobs=2)
    young.prompt_logprobs = True
    engine.open(old.opening())
    engine.open(young.opening())
    for _ in range(passes):
        assert isinstance(engine.verify([young.block()])[0], Unfinished)
    verify_until_done(engine, [old.block()])
    evicted = engine.usage().evictions
    assert (evicted > 0) == (passes > 4)  # the old one needs 60 to 64 of 96 positions, the young one has 8 per pass
    block = young.block()
    young.take(block, verify_until_done(engine, [block])[0])
    check(young)


def test_a_cached_prompt_is_computed_again_when_its_logprobs_are_wanted(make_verifier: MakeVerifier) -> None:
    engine = make_verifier(tiny_llama())
    cached = 40 // make_verifier.block_tokens * make_verifier.block_tokens
    first, second, third = (
        Client(name, [7, *range(40)], PARAMS["greedy"], logprobs=1, prompt_logprobs=name == "b") for name in "abc"
    )
    for client in (first, second, third):
        generate(engine, [client], lambda _: [], 2)
        check(client)
    assert [client.outcomes[0].cached_tokens for client in (first, second, third)] == [0, 0, cached]


def test_of_a_resumed_generation_only_the_prompt_is_scored(make_verifier: MakeVerifier) -> None:
    params = PARAMS["edited"]
    truth = tiny_alone(PROMPT, params, 30)
    client = Client("a", PROMPT, params, logprobs=3, prompt_logprobs=True)
    client.tokens += truth[:20]
    generate(make_verifier(tiny_llama(), prefill_chunk_tokens=4), [client], lambda c: truth[len(c.output) :][:3], 26)
    logits = plain_logits(tiny_llama(), client.tokens)
    assert client.outcomes[0].prompt_logprobs[0] is None
    assert_same_logprobs(client.outcomes[0].prompt_logprobs[1:], expected_logprobs(logits[:6], PROMPT[1:], 3))
    reported = [entry for outcome in client.outcomes for entry in outcome.logprobs]
    assert_same_logprobs(reported, expected_logprobs(logits[26:], client.output[20:], 3))


def test_a_prompt_of_one_token_has_nothing_to_score(make_verifier: MakeVerifier) -> None:
    client = Client("a", [5], PARAMS["greedy"], prompt_logprobs=True)
    generate(make_verifier(tiny_llama()), [client], lambda _: [], 2)
    assert [outcome.prompt_logprobs for outcome in client.outcomes] == [(None,), ()]


def test_a_repeated_round_reports_the_same_again(make_verifier: MakeVerifier) -> None:
    engine, client = make_verifier(tiny_llama()), Client("a", PROMPT, PARAMS["sampled"], logprobs=2)
    client.prompt_logprobs = True
    engine.open(client.opening())
    for draft in ([], [1, 2]):
        block = client.block(draft)
        outcome = verify_until_done(engine, [block])[0]
        assert outcome.logprobs
        assert bool(outcome.prompt_logprobs) == (not draft)
        assert engine.verify([block]) == [outcome]
        client.take(block, outcome)


def test_without_a_bonus_token_only_accepted_tokens_are_reported(make_verifier: MakeVerifier) -> None:
    truth = tiny_alone(PROMPT, PARAMS["greedy"], 6)
    engine, client = make_verifier(tiny_llama()), Client("a", PROMPT, PARAMS["greedy"], logprobs=1)
    client.prompt_logprobs = True
    engine.open(client.opening())
    for draft, expected in (([], []), (truth[:4], truth[:4]), ([truth[4], VOCAB - 1], truth[4:6])):
        block = client.block(draft, bonus=False)
        outcome = verify_until_done(engine, [block])[0]
        assert isinstance(outcome, Verified)
        assert [entry.token_id for entry in outcome.logprobs] == expected
        client.take(block, outcome)
    check(client)


def test_tokens_are_withheld_up_to_their_position_however_they_are_drafted(make_verifier: MakeVerifier) -> None:
    """The target's favourites are withheld for eight tokens, and drafted nevertheless."""
    free = PARAMS["greedy"]
    wanted = tiny_alone(PROMPT, free, 12)
    for params in (free, replace(PARAMS["sampled"], logit_bias=tuple((i, 20.0) for i in sorted(set(wanted))))):
        held = replace(params, withheld_ids=tuple(sorted(set(wanted))), withheld_until=len(PROMPT) + 8)
        truth = tiny_alone(PROMPT, held, 24)
        assert not set(truth[:8]) & set(wanted)
        assert params.greedy or set(truth[8:]) <= set(wanted)
        for window in (0, 3, 8):
            rng, client = random.Random(window), Client("a", PROMPT, held)
            drafts = [truth, wanted]
            generate(
                make_verifier(tiny_llama()),
                [client],
                lambda c: rng.choice(drafts)[len(c.output) :][:window],  # noqa: B023 (called within the iteration)
                12,
            )
            assert client.output == truth[: len(client.output)]
