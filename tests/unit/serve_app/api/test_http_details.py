from dataclasses import replace
from typing import Any

import pytest

from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, COMPLETION, events_of, post
from tests.unit.serve_app.api.test_tools import CLOCK, hermes
from tests.unit.serve_app.api.text_service import LIMITS, TEXT, TOKENIZER, TextService

DETAILS: dict[str, Any] = {"outrider": {"details": True}}
IDS = TOKENIZER.encode(TEXT)[:40]


def streamed(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    events = events_of(post(TextService(), path, body | {"stream": True}))[:-1]
    return [event["choices"][0] for event in events]


@pytest.mark.parametrize("chat", [False, True])
def test_each_token_tells_its_origin_and_its_text(*, chat: bool) -> None:
    choices = (
        streamed("/v1/chat/completions", CHAT | DETAILS) if chat else streamed("/v1/completions", COMPLETION | DETAILS)
    )
    details = [choice["outrider"] for choice in choices if "outrider" in choice]
    tokens = [token for each in details for token in each["tokens"]]
    assert [token["id"] for token in tokens] == IDS
    assert "".join(token["text"] for token in tokens) == ALL_TEXT
    assert [token["origin"] for token in tokens[:6]] == ["verifier"] * 3 + ["accepted", "accepted", "correction"]
    for choice in choices:
        text = choice["delta"].get("content", "") if chat else choice["text"]
        assert text == "".join(token["text"] for token in choice.get("outrider", {"tokens": ()})["tokens"])


def test_each_round_tells_where_its_time_went() -> None:
    choices = streamed("/v1/completions", COMPLETION | DETAILS)
    rounds = [reported for choice in choices if "outrider" in choice for reported in choice["outrider"]["rounds"]]
    assert sum(reported["committed_tokens"] for reported in rounds) == len(IDS)
    assert rounds[1] == {
        "protocol": "token_ids",
        "drafted_tokens": 2,
        "accepted_tokens": 1,
        "trimmed_tokens": 0,
        "committed_tokens": 3,
        "payload_bits": {"up": 80, "down": 64},
        "ended_ms": 500.0,
        "phases_ms": {"draft": 150.0, "verify": 100.0},
        "beside_ms": 0.0,
    }


def test_a_token_without_text_of_its_own_has_an_event() -> None:
    """Half of a character: its text comes with the next token, it does not."""
    texts = [
        token
        for choice in streamed("/v1/completions", COMPLETION | DETAILS)
        if "outrider" in choice
        for token in choice["outrider"]["tokens"]
    ]
    assert any(not token["text"] for token in texts), "the text has characters of several tokens"


def test_a_whole_response_tells_the_same_of_its_last_rounds() -> None:
    service = TextService(texts=["one two three " * 2000])
    choice = post(service, "/v1/completions", COMPLETION | DETAILS).json()["choices"][0]
    assert len(choice["outrider"]["tokens"]) == 40
    assert "".join(token["text"] for token in choice["outrider"]["tokens"]) == choice["text"]
    assert [reported["committed_tokens"] for reported in choice["outrider"]["rounds"]] == [3] * 13 + [1]


def test_an_echo_is_nobodys_token() -> None:
    body = COMPLETION | DETAILS | {"echo": True, "max_tokens": 0}
    choice = post(TextService(), "/v1/completions", body).json()["choices"][0]
    assert (choice["text"], "outrider" in choice) == ("Once upon", False)


def test_nobody_who_does_not_ask_is_told() -> None:
    service = TextService()
    choice = post(service, "/v1/completions", COMPLETION).json()["choices"][0]
    assert "outrider" not in choice
    assert not service.requests[0].details


def test_a_streamed_chat_with_tools_tells_the_same_as_one_without() -> None:
    limits = replace(LIMITS, tool_format="hermes")
    asked = {"outrider": {"details": True, "spans": True}, "stream": True, "tools": [CLOCK], "max_tokens": 90}
    service = TextService(texts=("Let me see. " + hermes("clock", "{}"),), limits=limits)
    events = events_of(post(service, "/v1/chat/completions", CHAT | asked))[:-1]
    choices = [event["choices"][0] for event in events]
    told = [choice["outrider"] for choice in choices if "outrider" in choice]
    assert any("tool_calls" in choice["delta"] for choice in choices)
    token_text = "".join(token["text"] for each in told for token in each["tokens"])
    assert token_text.startswith("Let me see. ")
    assert "clock" in token_text
    assert "".join(span["text"] for each in told for span in each.get("spans", ())) == token_text
    assert sum(made["committed_tokens"] for each in told for made in each["rounds"]) == sum(
        len(each["tokens"]) for each in told
    )
