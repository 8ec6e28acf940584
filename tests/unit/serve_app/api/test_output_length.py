"""``max_tokens`` beyond what there may be: clamped and told, or refused where fields are strict."""

from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.errors import ParameterError
from serve_app.api.http_errors import PromptTooLongError
from tests.unit.serve_app.api.asked_choices import choices, generation
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, post
from tests.unit.serve_app.api.text_service import LIMITS, TextService

STRICT = replace(LIMITS, strict_fields=True)
LARGE = replace(LIMITS, max_context_tokens=131_072, max_output_tokens=131_071)
FULL = LIMITS.max_context_tokens


@pytest.mark.parametrize("asked", [101, 32_000, 10**30])
@pytest.mark.parametrize(
    ("fields", "field", "least"),
    [
        ({}, "max_tokens", 1),
        ({"echo": True}, "max_tokens", 0),
        ({"chat": 1}, "max_tokens", 1),
        ({"chat": 1}, "max_completion_tokens", 1),
    ],
)
def test_more_than_is_allowed_is_clamped_or_refused(fields: dict[str, Any], field: str, least: int, asked: int) -> None:
    assert generation(**(fields | {field: asked})).max_tokens == LIMITS.max_output_tokens == 100
    with pytest.raises(ParameterError, match=rf"^{field} needs an integer in {least}\.\.100, found {asked}"):
        generation(limits=STRICT, **(fields | {field: asked}))
    assert generation(limits=STRICT, **(fields | {field: 100})).max_tokens == 100


@pytest.mark.parametrize("echo", [False, True])
def test_more_than_is_left_of_the_context_is_clamped_or_refused(*, echo: bool) -> None:
    fields: dict[str, Any] = {"prompt": [5] * 200, "max_tokens": 57, "echo": echo}
    assert FULL == 256
    assert generation(**fields).max_tokens == 56
    with pytest.raises(PromptTooLongError, match=r"^max_tokens needs at most 56 .*found 57"):
        generation(limits=STRICT, **fields)
    made = choices(prompt=[[5] * 200, [5] * 255, [5]], n=2, max_tokens=90)
    assert [choice.request.max_tokens for choice in made] == [56, 56, 1, 1, 90, 90]


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"n": 16, "max_tokens": 130_000}, 62_500),
        ({"max_tokens": 130_000, "logprobs": 20}, 45_454),
        ({"max_tokens": 130_000, "logprobs": 20, "echo": True, "prompt": [5] * 454}, 45_000),
        ({"chat": 1, "max_tokens": 130_000, "logprobs": True, "top_logprobs": 9}, 90_909),
        ({"prompt": ["a"] * 11, "max_tokens": 100_000}, 90_909),
    ],
)
def test_more_than_all_choices_may_cost_is_clamped(fields: dict[str, Any], most: int) -> None:
    assert {choice.request.max_tokens for choice in choices(limits=LARGE, **fields)} == {most}


def test_more_than_least_tokens_does_not_fit_into_what_is_clamped() -> None:
    with pytest.raises(ParameterError, match=r"^min_tokens needs an integer in 0\.\.100 \(max_tokens\), found 200"):
        generation(max_tokens=32_000, min_tokens=200)


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_clamped_is_told_in_a_header(*, stream: bool) -> None:
    service = TextService()
    for path, body, field in (
        ("/v1/completions", COMPLETION, "max_tokens"),
        ("/v1/chat/completions", CHAT, "max_tokens"),
        ("/v1/chat/completions", CHAT, "max_completion_tokens"),
    ):
        given = {name: value for name, value in body.items() if name not in ("max_tokens", "max_completion_tokens")}
        answer = post(service, path, given | {"stream": stream, field: 32_000})
        assert answer.status_code == 200
        assert answer.headers["x-outrider-max-tokens"] == str(service.limits.max_output_tokens)
        for length in ({field: 10}, {}):
            assert "x-outrider-max-tokens" not in post(service, path, given | {"stream": stream} | length).headers
