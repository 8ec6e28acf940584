"""Requests that say nothing of how they are sampled."""

from dataclasses import replace

import pytest

from outrider.contracts.requests import SamplingParams
from outrider.contracts.sampling_defaults import SamplingDefaults
from tests.unit.serve_app.api.asked_choices import SEED, generation
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, ask, post
from tests.unit.serve_app.api.text_service import LIMITS, TextService

DEFAULTS = SamplingDefaults({"temperature": 0.2, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1}, max_tokens=30)
SET = replace(LIMITS, defaults=DEFAULTS)
TOLD = {"temperature": 0.2, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1}


def test_each_parameter_left_out_is_filled_in_by_itself() -> None:
    expected = SamplingParams(0.2, top_p=0.9, top_k=20, repetition_penalty=1.1, seed=SEED)
    assert generation(limits=SET).params == expected
    asked = generation(limits=SET, temperature=1.0, top_p=None, top_k=-1).params
    assert asked == SamplingParams(1.0, top_p=0.9, top_k=0, repetition_penalty=1.1, seed=SEED)


def test_a_neutral_value_that_is_named_counts() -> None:
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}
    assert generation(limits=SET, **neutral).params == SamplingParams(seed=SEED)


@pytest.mark.parametrize(("chat", "expected"), [({"chat": 1}, 30), ({}, 16)])
def test_the_length_is_that_of_chats(chat: dict[str, int], expected: int) -> None:
    """A completion's default is OpenAI's, in vLLM, too."""
    assert generation(limits=SET, **chat).max_tokens == expected
    assert generation(limits=SET, **chat, max_tokens=100).max_tokens == 100
    assert generation(limits=replace(SET, max_output_tokens=12), **chat).max_tokens == 12


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
def test_usage_tells_what_was_used_and_the_card_what_would_be(path: str, body: dict[str, object]) -> None:
    service = TextService(limits=SET)
    assert post(service, path, body).json()["usage"]["outrider"]["sampling"] == TOLD
    asked = body | {"temperature": 0, "top_p": 1, "top_k": 0, "repetition_penalty": 1, "min_p": 0.5}
    assert post(service, path, asked).json()["usage"]["outrider"]["sampling"] == {"temperature": 0.0, "min_p": 0.5}
    assert ask(service, "GET", "/v1/models").json()["data"][0]["outrider"]["sampling"] == TOLD | {"max_tokens": 30}
    assert post(TextService(), path, body).json()["usage"]["outrider"]["sampling"] == {"temperature": 1.0}
