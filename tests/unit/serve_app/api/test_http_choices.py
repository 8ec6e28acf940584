import asyncio
from itertools import accumulate, pairwise
from typing import Any

import pytest

from outrider.contracts.errors import BusyError, GenerationFailedError
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, COMPLETION, Connection, error_of, events_of, post, within
from tests.unit.serve_app.api.text_service import TextService

TEXTS = ["One is first.", "Two comes after one, and it is longer.", "Three 🦊 three."]
SIX: dict[str, Any] = COMPLETION | {"prompt": ["A", "Once upon"], "n": 3}


def test_choices_come_in_their_order_with_their_own_texts() -> None:
    choices = post(TextService(texts=TEXTS), "/v1/completions", SIX).json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    assert [choice["text"] for choice in choices] == TEXTS * 2


def test_a_chat_has_choices_too() -> None:
    choices = post(TextService(texts=TEXTS), "/v1/chat/completions", CHAT | {"n": 2}).json()["choices"]
    assert [(choice["index"], choice["message"]["content"]) for choice in choices] == list(enumerate(TEXTS[:2]))


def test_usage_counts_a_prompt_once_and_every_choice() -> None:
    usage = post(TextService(), "/v1/completions", SIX).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 240, 243)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 5 + 8}
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 84, "rejected_prediction_tokens": 84}
    assert usage["outrider"] == {
        "rounds": 84,
        "speculative_rounds": 78,
        "drafted_tokens": 168,
        "accepted_tokens": 84,
        "trimmed_tokens": 0,
        "protocols": {"token_ids": 78, "none": 6},
        "payload_bits": {"up": 80 * 84, "down": 64 * 84},
        "lossless": True,
        "verification": "lossless",
        "sampling": {"temperature": 1.0},
        "slo": {
            "class": "best_effort",
            "promised_tokens_per_s": None,
            "achieved_tokens_per_s": 1.897,  # the slowest choice's
            "kept": True,
            "cause": None,
            "times_behind": 15,
            "late_rounds": {"queue": 42, "compute": 18},
        },
    }


def test_protocols_that_were_not_used_are_not_listed() -> None:
    usage = post(TextService(), "/v1/completions", COMPLETION | {"max_tokens": 1}).json()["usage"]
    assert usage["outrider"]["protocols"] == {"none": 1}


@pytest.mark.parametrize("chat", [False, True])
def test_a_stream_interleaves_the_choices(*, chat: bool) -> None:
    body = (CHAT if chat else COMPLETION) | {"n": 3, "stream": True, "stream_options": {"include_usage": True}}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    *events, usage, done = events_of(post(TextService(texts=TEXTS), path, body))
    assert (done, usage["choices"]) == ("[DONE]", [])
    assert usage["usage"]["completion_tokens"] > 0
    assert all(event["usage"] is None for event in events)
    choices = [event["choices"][0] for event in events]
    for index, text in enumerate(TEXTS):
        first, *middle, last = [choice for choice in choices if choice["index"] == index]
        texts = [choice["delta"]["content"] if chat else choice["text"] for choice in middle]
        if chat:
            assert first["delta"] == {"role": "assistant", "content": ""}
        else:
            texts = [first["text"], *texts]
        assert "".join(texts) == text
        assert all(choice["finish_reason"] is None for choice in (first, *middle))
        assert last["finish_reason"] == "length"
    order = [choice["index"] for choice in choices]
    assert sum(left != right for left, right in pairwise(order)) > 2, "choices come one after the other"


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_one_choice_is_the_responses_and_cancels_the_others(*, stream: bool) -> None:
    service = TextService(trouble_at=0, trouble_with=0, error=BusyError("full"))
    response = post(service, "/v1/completions", COMPLETION | {"n": 3, "stream": stream})
    assert (response.status_code, error_of(response)["code"]) == (429, "busy")
    assert service.cancelled + service.said_all <= 2
    assert service.said_all == 0


def test_an_error_of_one_choice_amid_a_stream_ends_all() -> None:
    service = TextService(trouble_at=6, trouble_with=1, error=GenerationFailedError("secret"))
    *events, error = events_of(post(service, "/v1/completions", COMPLETION | {"n": 3, "stream": True}))
    assert error["error"]["code"] == "unavailable"
    assert {event["choices"][0]["index"] for event in events} == {0, 1, 2}
    assert (service.cancelled, service.said_all) == (2, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_cancels_all_choices(*, stream: bool) -> None:
    async def hang_up() -> None:
        service = TextService(trouble_at=6)
        connection = Connection("/v1/completions", SIX | {"stream": stream})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        connection.hung_up.set()
        await serving
        assert (len(service.requests), service.cancelled) == (6, 6)

    within(hang_up())


def spans_of(choice: dict[str, Any]) -> list[tuple[str, str]]:
    return [(span["text"], span["origin"]) for span in choice["outrider"]["spans"]]


def test_spans_tell_who_proposed_the_text() -> None:
    body = COMPLETION | {"outrider": {"spans": True}, "max_tokens": 7}
    (choice,) = post(TextService(), "/v1/completions", body).json()["choices"]
    spans = spans_of(choice)
    assert spans == [("The quick ", "verifier"), ("🦊", "accepted"), (" jumps", "correction"), (" over", "accepted")]
    streamed = [
        event["choices"][0] for event in events_of(post(TextService(), "/v1/completions", body | {"stream": True}))[:-1]
    ]
    *texts, last = streamed
    assert all("".join(text for text, _ in spans_of(choice)) == choice["text"] for choice in texts)
    assert [origin for choice in texts for _, origin in spans_of(choice)] == [origin for _, origin in spans]
    assert "outrider" not in last


def test_a_chat_has_spans_and_by_default_none() -> None:
    body = CHAT | {"stream": True}
    with_spans = events_of(post(TextService(), "/v1/chat/completions", body | {"outrider": {"spans": True}}))[:-1]
    pieces = [event["choices"][0] for event in with_spans if event["choices"][0]["delta"].get("content")]
    assert "".join(text for choice in pieces for text, _ in spans_of(choice)) == ALL_TEXT
    without = events_of(post(TextService(), "/v1/chat/completions", body))[:-1]
    assert all("outrider" not in event["choices"][0] for event in without)
    assert "outrider" not in post(TextService(), "/v1/chat/completions", CHAT).json()["choices"][0]


def test_min_tokens_and_stop_reach_every_choice() -> None:
    service = TextService()
    choices = post(service, "/v1/completions", SIX | {"stop": " over", "min_tokens": 9}).json()["choices"]
    assert {request.min_tokens for request in service.requests} == {9}
    assert all(choice["text"].startswith("The quick 🦊 jumps over 漢字") for choice in choices)
    assert all(choice["finish_reason"] == "stop" for choice in choices)


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_comes_before_the_text(*, stream: bool) -> None:
    body = COMPLETION | {"prompt": ["Once upon", "A <|im_end|> b"], "n": 2, "echo": True, "stream": stream}
    response = post(TextService(), "/v1/completions", body)
    events = events_of(response)[:-1] if stream else [response.json()]
    choices = [choice for event in events for choice in event["choices"]]
    for index, prompt in enumerate(["Once upon"] * 2 + ["A <|im_end|> b"] * 2):
        pieces = [choice["text"] for choice in choices if choice["index"] == index]
        assert "".join(pieces) == prompt + ALL_TEXT
        assert not stream or next(accumulate(pieces)) == prompt


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_alone_shows_nothing_else(*, stream: bool) -> None:
    body = COMPLETION | {"echo": True, "max_tokens": 0, "stream": stream, "stop": "T"}
    if stream:
        echo, last = [event["choices"][0] for event in events_of(post(TextService(), "/v1/completions", body))[:-1]]
        assert (echo["text"], last["text"], last["finish_reason"]) == ("Once upon", "", "length")
        return
    whole = post(TextService(), "/v1/completions", body).json()
    assert (whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]) == ("Once upon", "length")
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (2, 0)


def test_spans_do_not_cover_an_echo() -> None:
    body = COMPLETION | {"echo": True, "outrider": {"spans": True}}
    (choice,) = post(TextService(), "/v1/completions", body).json()["choices"]
    assert "Once upon" + "".join(text for text, _ in spans_of(choice)) == choice["text"]
