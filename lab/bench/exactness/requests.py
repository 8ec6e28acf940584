"""Short requests of every kind of sampling, drawn from a seed. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.requests import SamplingParams

_PROMPT_TOKENS = (10, 200)
_OUTPUT_TOKENS = (16, 40)
_MOST_BIASED = 4
_LOGPROBS = (None, None, 0, 3)


@dataclass(frozen=True, slots=True)
class Request:
    name: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    tokens: int  # of output
    logprobs: int | None  # alternatives to report


def draw_requests(texts: Sequence[Sequence[int]], count: int, seed: int, vocab_size: int) -> tuple[Request, ...]:
    """Draw ``count`` requests, every other one greedy.

    ``texts`` are token ids of prompts, each cut at a random length and continued by the next one if it is too short.
    """
    rng = random.Random(seed)  # noqa: S311 (inputs, not secrets)
    return tuple(_request(number, texts, rng, vocab_size) for number in range(count))


def _request(number: int, texts: Sequence[Sequence[int]], rng: random.Random, vocab_size: int) -> Request:
    wanted, prompt = rng.randint(*_PROMPT_TOKENS), list[int]()
    while len(prompt) < wanted:
        prompt += rng.choice(texts)
    params = _greedy(rng, vocab_size) if number % 2 == 0 else _sampled(rng, vocab_size)
    tokens = rng.randint(*_OUTPUT_TOKENS)
    return Request(f"r{number}", tuple(prompt[:wanted]), params, tokens, rng.choice(_LOGPROBS))


def _greedy(rng: random.Random, vocab_size: int) -> SamplingParams:
    edits = _edits(rng, vocab_size) if rng.random() < 1 / 3 else {}
    return SamplingParams(temperature=0.0, **edits)  # type: ignore[arg-type]  # fields by name


def _sampled(rng: random.Random, vocab_size: int) -> SamplingParams:
    edits = _edits(rng, vocab_size) if rng.random() < 1 / 3 else {}
    return SamplingParams(
        temperature=rng.choice((0.3, 0.7, 1.0, 1.3)),
        top_p=rng.choice((1.0, 1.0, 0.95, 0.8)),
        top_k=rng.choice((0, 0, 0, 40)),
        min_p=rng.choice((0.0, 0.0, 0.0, 0.05)),
        seed=rng.getrandbits(64),
        **edits,  # type: ignore[arg-type]
    )


def _edits(rng: random.Random, vocab_size: int) -> dict[str, object]:
    biased = rng.sample(range(vocab_size), rng.randint(0, min(_MOST_BIASED, vocab_size)))
    return {
        "repetition_penalty": rng.choice((1.0, 1.1, 1.3)),
        "presence_penalty": rng.choice((0.0, 0.4, -0.3)),
        "frequency_penalty": rng.choice((0.0, 0.3)),
        "logit_bias": tuple((token, rng.uniform(-5.0, 5.0)) for token in biased),
    }
