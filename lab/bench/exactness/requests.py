"""Short requests of every kind of sampling, and right, nearly right, wrong and misleading drafts, from a seed. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.requests import SamplingParams
from outrider.lookup.suffixes import Suffixes

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


MOST_TOKENS = 16
_TREES = 0.3  # share of all drafts
_RIGHT = 0.8  # share of the tokens of a nearly right draft


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is known of the tokens to come."""

    truth: Sequence[int]  # the reference's next tokens
    runners_up: Sequence[int]  # for each, the most probable other token
    text: Sequence[int]  # prompt and output so far


@dataclass(frozen=True, slots=True)
class Drafted:
    """A chain, or with ``parents`` a tree (see ``Block.parents``)."""

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None


def draw_draft(ahead: Ahead, rng: random.Random, vocab_size: int) -> Drafted:
    window = rng.randint(0, MOST_TOKENS)
    if window and rng.random() < _TREES:
        return _tree(ahead, window, rng, vocab_size)
    kind = rng.choice((_right, _nearly, _misled, _random, _looked_up))
    return Drafted(tuple(kind(ahead, window, rng, vocab_size)))


def _right(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:  # noqa: ARG001 (as all)
    return ahead.truth[:window]


def _nearly(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:
    return [token if rng.random() < _RIGHT else rng.randrange(vocab_size) for token in ahead.truth[:window]]


def _misled(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:
    """Right except for one token, which is the most probable other."""
    draft = list(ahead.truth[:window])
    if draft:
        at = rng.randrange(len(draft))
        draft[at] = _other(ahead, at, rng, vocab_size)
    return draft


def _random(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:  # noqa: ARG001
    return [rng.randrange(vocab_size) for _ in range(window)]


def _looked_up(ahead: Ahead, window: int, rng: random.Random, vocab_size: int) -> Sequence[int]:  # noqa: ARG001
    suffixes = Suffixes()
    suffixes.extend(ahead.text)
    found = suffixes.find(window)
    return () if found is None else found.token_ids


def _other(ahead: Ahead, at: int, rng: random.Random, vocab_size: int) -> int:
    return ahead.runners_up[at] if at < len(ahead.runners_up) else rng.randrange(vocab_size)


def _tree(ahead: Ahead, nodes: int, rng: random.Random, vocab_size: int) -> Drafted:
    """A tree with a right path of some length; other branches are the most probable other tokens, or random."""
    tokens, parents, depths = list[int](), list[int](), list[int]()
    right = -1  # last node of the right path
    for node in range(nodes):
        level = 0 if right < 0 else depths[right]
        grows = level < len(ahead.truth) and rng.random() < 0.5
        parent = right if grows else rng.randint(-1, node - 1)
        depth = 0 if parent < 0 else depths[parent]
        token = ahead.truth[depth] if grows else _other(ahead, depth, rng, vocab_size)
        tokens.append(token)
        parents.append(parent)
        depths.append(depth + 1)
        right = node if grows else right
    return Drafted(tuple(tokens), tuple(parents))
