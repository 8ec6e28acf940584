"""A load, drawn before it is sent: when each request leaves, and what it contains.

The load is open: arrivals are a Poisson process (exponential gaps) fixed by the seed, and never wait for an answer.
Requests are mixed: short chats, conversations, chats and completions about documents of 60 to 400 words, short
completions; half of them greedy, half sampled; output lengths are log-normal with a median of a third of the longest.
If SLO classes are given, each request names one of them, all equally often.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, repeat, takewhile
from typing import cast

import numpy as np

from lab.bench.harness.prompts import CONTINUATIONS, PROMPTS, document

_CHATS, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
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


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """All requests of one rate. ``span_s``: time in which they leave, the basis of the offered rate."""

    rate_per_s: float
    span_s: float
    requests: tuple[PlannedRequest, ...]


def plan_load(
    rate_per_s: float,
    *,
    seed: tuple[int, ...],
    max_tokens: int,
    duration_s: float | None = None,
    requests: int | None = None,
    window: int | None = None,
    classes: Sequence[str] = (),
) -> LoadPlan:
    """Draw a load.

    Args:
        rate_per_s: mean number of requests per second.
        seed: the same seed draws the same load.
        max_tokens: the longest output.
        duration_s: for how long requests leave; or
        requests: how many leave.
        window: draft tokens per round; None leaves it to the service.
        classes: SLO classes to name; none leaves it to the service.
    """
    assert duration_s is not None or requests is not None, "a load without an end"
    arrivals = np.random.default_rng((*seed, 0))
    times_s = accumulate(float(arrivals.exponential(1 / rate_per_s)) for _ in repeat(None))
    end_s = math.inf if duration_s is None else duration_s
    kept_s = list(takewhile(lambda at_s: at_s < end_s, islice(times_s, requests)))
    bodies = np.random.default_rng((*seed, 1))
    planned = tuple(PlannedRequest(at_s, *_request(bodies, max_tokens, window)) for at_s in kept_s)
    if classes:
        drawn = np.random.default_rng((*seed, 2)).integers(len(classes), size=len(planned))
        planned = tuple(_promised(one, classes[index]) for one, index in zip(planned, drawn, strict=True))
    return LoadPlan(rate_per_s, kept_s[-1] if duration_s is None else duration_s, planned)


def _promised(request: PlannedRequest, slo_class: str) -> PlannedRequest:
    """The same request, naming a class."""
    options = {**cast("dict[str, object]", request.body.get("outrider", {})), "slo_class": slo_class}
    return replace(request, body={**request.body, "outrider": options}, slo_class=slo_class)


def _request(rng: np.random.Generator, max_tokens: int, window: int | None) -> tuple[str, dict[str, object]]:
    path, prompt = _KINDS[rng.integers(len(_KINDS))](rng)
    length = round(float(rng.lognormal(math.log(max_tokens * _MEDIAN_SHARE), _SIGMA)))
    body = {
        **prompt,
        **_SAMPLINGS[rng.integers(len(_SAMPLINGS))],
        "max_tokens": min(max(length, 1), max_tokens),
        "ignore_eos": True,  # the drawn length is the output's, whatever the model
        "seed": int(rng.integers(2**31)),
    }
    return path, body if window is None else body | {"outrider": {"window": window}}


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
    return _COMPLETIONS, {"prompt": _one_of(CONTINUATIONS, rng)}


def _document_continuation(rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    return _COMPLETIONS, {"prompt": _long_document(rng)}


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
