"""In bfloat16 an engine's answers are, bit for bit, what it says alone: tokens and their log-probabilities."""

import random
from collections.abc import Sequence

import pytest

from outrider.contracts.requests import SamplingParams, TokenLogprobs
from tests.unit.engines.conftest import CONTEXT_TOKENS, EXACT_VERIFIERS, IN_BFLOAT16, VOCAB, tiny_llama
from tests.unit.engines.reference import Client, generate, verify_until_done
from tests.unit.engines.verifier.test_trees import random_tree

pytestmark = IN_BFLOAT16

MAKE = EXACT_VERIFIERS["bfloat16"]
PARAMS = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0, seed=3),
    SamplingParams(temperature=0.8, top_p=0.9, seed=5),
    SamplingParams(seed=6, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4),
)
TOKENS = 40


def clients(count: int, rng: random.Random) -> list[Client]:
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 150))] for _ in range(count)]
    return [Client(f"c{i}", prompt, PARAMS[i % len(PARAMS)], logprobs=3) for i, prompt in enumerate(prompts)]


def said_alone(client: Client) -> Client:
    """The same generation, its prompt in one pass and then token by token."""
    alone = Client(client.name, client.prompt, client.params, logprobs=3)
    engine = MAKE(tiny_llama(), prefill_chunk_tokens=CONTEXT_TOKENS)
    generate(engine, [alone], lambda _: (), TOKENS + 20)
    return alone


def logprobs(client: Client) -> list[TokenLogprobs]:
    return [entry for outcome in client.outcomes for entry in outcome.logprobs]


def check(found: Client, alone: Client) -> None:
    count = len(found.output)
    assert found.output == alone.output[:count]
    assert logprobs(found) == logprobs(alone)[:count], "not about the same, the same"


def near(truth: Sequence[int], window: int, rng: random.Random) -> list[int]:
    return [token if rng.random() < 0.8 else rng.randrange(VOCAB) for token in truth[:window]]


@pytest.mark.parametrize("seed", range(3))
def test_windows_company_chunks_and_evictions_change_no_bit(seed: int) -> None:
    rng = random.Random(seed)
    found = clients(12, rng)
    alone = {client.name: said_alone(client) for client in found}
    engine = MAKE(tiny_llama(), blocks=MAKE.blocks_of(900), prefill_chunk_tokens=rng.choice([5, 33, 64]))

    def draft(client: Client) -> list[int]:
        return near(alone[client.name].output[len(client.output) :], rng.randint(0, 16), rng)

    generate(engine, found, draft, TOKENS)
    assert engine.usage().evictions > 0
    for client in found:
        check(client, alone[client.name])


@pytest.mark.parametrize("seed", range(3))
def test_trees_change_no_bit(seed: int) -> None:
    """Nor does what is left behind of them: each is followed by another, across lengths at which more keys are seen."""
    rng = random.Random(seed)
    for client in clients(4, rng):
        alone, engine = said_alone(client), MAKE(tiny_llama())
        engine.open(client.opening())
        while len(client.output) < TOKENS:
            draft, parents = random_tree(alone.output[len(client.output) :], rng)
            block = client.block(draft, parents=parents)
            client.take(block, verify_until_done(engine, [block])[0])
        check(client, alone)
