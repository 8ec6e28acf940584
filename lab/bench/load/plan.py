"""A load, drawn before it is sent: when each request leaves, and what it contains.

The load is open: arrivals are drawn from the seed as ``vllm bench serve`` draws them, and never wait for an answer.
Requests of the mixed kind: short chats, conversations, chats and completions about documents of 60 to 400 words, short
completions; half of them greedy, half sampled; output lengths are log-normal with a median of a third of the longest.
If SLO classes are given, each request names one of them, all equally often.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.harness.prompts import CONTINUATIONS, PROMPTS, document

COMPLETIONS, _CHATS = "/v1/completions", "/v1/chat/completions"
_SAMPLINGS: tuple[dict[str, float], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 1.0},
)
_DOCUMENT_WORDS = (60, 400)
_MEDIAN_SHARE, _SIGMA = 1 / 3, 0.7  # of the log-normal output lengths


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request: when it leaves, in seconds after the start, and where to; ``body`` lacks model and streaming.

    ``kind``: of prompt, where kinds are told apart; ``slo_class``: the class it names, if any.
    """

    at_s: float
    path: str
    body: Mapping[str, object]
    kind: str = ""
    slo_class: str = ""


def plan_load(
    asked: Sequence[tuple[str, Mapping[str, object]]],
    rate_per_s: float,
    *,
    seed: int,
    burstiness: float = 1.0,
    window: int | None = None,
    classes: Sequence[str] = (),
) -> tuple[PlannedRequest, ...]:
    """Draw when each request leaves, and the class that it names.

    Args:
        asked: path and body of each request.
        rate_per_s: mean number of requests per second; infinite: all at once.
        seed: the same seed draws the same load.
        burstiness: shape of the gamma distribution of gaps; 1 is a Poisson process, more is more regular.
        window: draft tokens per round; None leaves it to the service.
        classes: SLO classes to name; none leaves it to the service.
    """
    times_s = arrivals_s(len(asked), rate_per_s, burstiness, seed)
    drawn = np.random.default_rng((seed, 2)).integers(len(classes), size=len(asked)) if classes else ()
    named = [classes[index] for index in drawn] or [""] * len(asked)
    planned = []
    for at_s, (path, body), slo_class in zip(times_s, asked, named, strict=True):
        options = ({} if window is None else {"window": window}) | ({"slo_class": slo_class} if slo_class else {})
        whole = {**body, "outrider": options} if options else body
        planned.append(PlannedRequest(at_s, path, whole, slo_class=slo_class))
    return tuple(planned)


def arrivals_s(count: int, rate_per_s: float, burstiness: float, seed: int) -> list[float]:
    """Times of arrivals with gamma distributed gaps, scaled so that the last is at ``count / rate_per_s``.

    For a seed they are those of ``vllm bench serve`` 0.32.
    """
    if math.isinf(rate_per_s):
        return [0.0] * count
    gaps_s = np.random.RandomState(seed).gamma(burstiness, 1 / (rate_per_s * burstiness), count)
    times_s = np.cumsum(gaps_s)
    return [float(at_s) for at_s in times_s * (count / rate_per_s / times_s[-1])]


def mixed_requests(count: int, seed: int, max_tokens: int) -> list[tuple[str, dict[str, object]]]:
    """Path and body of each mixed request; ``max_tokens``: the longest output."""
    rng = np.random.default_rng((seed, 1))
    return [_request(rng, max_tokens) for _ in range(count)]


def _request(rng: np.random.Generator, max_tokens: int) -> tuple[str, dict[str, object]]:
    path, prompt = _KINDS[rng.integers(len(_KINDS))](rng)
    length = round(float(rng.lognormal(math.log(max_tokens * _MEDIAN_SHARE), _SIGMA)))
    return path, {
        **prompt,
        **_SAMPLINGS[rng.integers(len(_SAMPLINGS))],
        "max_tokens": min(max(length, 1), max_tokens),
        "ignore_eos": True,  # the drawn length is the output's, whatever the model
        "seed": int(rng.integers(2**31)),
    }


def _chat(rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    return _CHATS, {"messages": [_said("user", _one_of(PROMPTS, rng))]}


def _conversation(rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    question, next_question = _one_of(PROMPTS, rng), _one_of(PROMPTS, rng)
    return _CHATS, {
        "messages": [
            _said("system", "You are a helpful assistant. Answer briefly."),
            _said("user", question),
            _said("assistant", document(rng, 20)),
            _said("user", next_question),
        ]
    }


def _document_chat(rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    return _CHATS, {"messages": [_said("user", f"Summarise in two sentences:\n\n{_long_document(rng)}")]}


def _continuation(rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    return COMPLETIONS, {"prompt": _one_of(CONTINUATIONS, rng)}


def _document_continuation(rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    return COMPLETIONS, {"prompt": _long_document(rng)}


# Drawn uniformly: an entry that occurs twice is sent twice as often.
_KINDS: tuple[Callable[[np.random.Generator], tuple[str, dict[str, object]]], ...] = (
    _chat,
    _chat,
    _conversation,
    _document_chat,
    _continuation,
    _document_continuation,
)


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _one_of(texts: tuple[str, ...], rng: np.random.Generator) -> str:
    return texts[rng.integers(len(texts))]


def _long_document(rng: np.random.Generator) -> str:
    return document(rng, int(rng.integers(*_DOCUMENT_WORDS)))
