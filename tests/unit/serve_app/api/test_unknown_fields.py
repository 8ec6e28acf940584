from dataclasses import replace
from typing import Any

import pytest

from serve_app.api.openai.fields.ignored import (
    IGNORED_HEADER,
    MOST_IGNORED,
    MOST_NAME_CHARS,
    MOST_NAMED,
    IgnoredFields,
    resembled,
)
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, error_of, post
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TextService

STRICT = replace(LIMITS, strict_fields=True)
TOLD = [{"role": "user", "content": [{"type": "text", "text": "Hello", "tone": 1}], "id": "m"} for _ in range(3)]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"session_id": "a", "provider": {"order": []}}, "session_id, provider"),
        ({"nonsense": None}, "nonsense"),
        ({"messages": TOLD}, "messages.id, messages.content.tone"),
        ({"models": ["other"]}, "models"),
        ({"a b\r\nx: y": 1, "\u00e9": 1, "": 1}, "a?b??x??y, ?, ?"),
        ({"x" * 100: 1}, "x" * MOST_NAME_CHARS),
        ({f"nobody{i}": i for i in range(MOST_IGNORED)}, ", ".join(f"nobody{i}" for i in range(MOST_NAMED))),
        ({}, None),
    ],
)
def test_what_nobody_knows_is_told_and_changes_nothing(fields: dict[str, Any], told: str | None) -> None:
    answer = post(TextService(), "/v1/chat/completions", CHAT | fields)
    assert (answer.status_code, answer.headers.get(IGNORED_HEADER)) == (200, told)
    known = CHAT | {name: value for name, value in fields.items() if name == "messages"}
    assert answer.json()["choices"] == post(TextService(), "/v1/chat/completions", known).json()["choices"]


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize", "/detokenize"])
def test_every_body_is_read_so(path: str) -> None:
    body = {"/v1/completions": COMPLETION, "/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": [1]}}[path]
    assert post(TextService(), path, body | {"nonsense": 1}).headers[IGNORED_HEADER] == "nonsense"
    refused = post(TextService(limits=STRICT), path, body | {"nonsense": 1})
    assert (refused.status_code, error_of(refused)["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize("fields", [{"nonsense": 1}, {"messages": TOLD}, {"temprature": 1}])
def test_strict_fields_refuse_what_nobody_knows(fields: dict[str, Any]) -> None:
    refused = post(TextService(limits=STRICT), "/v1/chat/completions", CHAT | fields)
    assert (refused.status_code, error_of(refused)["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize(
    ("misspelled", "meant"),
    [
        ("temprature", "temperature"),
        ("Temperature", "temperature"),
        ("max-tokens", "max_tokens"),
        ("topp", "top_p"),
        ("stops", "stop"),
        ("tool", "tools"),
        ("presencePenalty", "presence_penalty"),
    ],
)
def test_a_misspelling_is_refused_by_name(misspelled: str, meant: str) -> None:
    refused = post(TextService(), "/v1/chat/completions", CHAT | {misspelled: 1})
    assert refused.status_code == 400
    assert f"{misspelled} is not a known field; did you mean {meant}?" in error_of(refused)["message"]


def test_names_of_others_are_no_misspellings() -> None:
    known = ("model", "stream", "messages", "user", "seed", "stop", "tools", "n", "echo", "metadata")
    for name in ("models", "provider", "session_id", "route", "transforms", "plugins", "tags", "trace_id", "usage"):
        assert resembled(name, known) is None, name


def test_more_unknown_fields_than_may_be_looked_at_are_refused() -> None:
    many = {f"nobody{i}": 1 for i in range(MOST_IGNORED + 1)}
    refused = post(TextService(), "/v1/chat/completions", CHAT | many)
    assert refused.status_code == 400
    assert f"nobody{MOST_IGNORED} is not a known field, nor are" in error_of(refused)["message"]


def test_an_error_tells_nothing_twice_and_options_of_our_own_are_not_ignored() -> None:
    refused = post(TextService(), "/v1/completions", {"model": MODEL, "prompt": "a", "outrider": {"k": 1}})
    assert "outrider.k is not a known field; known here: window" in error_of(refused)["message"]
    assert IgnoredFields().headers == {}
