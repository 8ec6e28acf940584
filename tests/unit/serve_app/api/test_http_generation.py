import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from ray.serve.exceptions import BackPressureError

from outrider.contracts.errors import BusyError, ContextTooLongError, GenerationFailedError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, COMPLETION, Connection, error_of, events_of, post, within
from tests.unit.serve_app.api.text_service import MODEL, SETTINGS, TEXT, TOKENIZER, TextService


def test_a_completion_is_openais() -> None:
    response = post(TextService(), "/v1/completions", COMPLETION)
    completion = Completion.model_validate(response.json())
    assert (response.status_code, completion.object, completion.model) == (200, "text_completion", MODEL)
    assert [choice.text for choice in completion.choices] == [ALL_TEXT]
    assert completion.choices[0].finish_reason == "length"
    assert response.json()["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 40,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"accepted_prediction_tokens": 14, "rejected_prediction_tokens": 14},
        "outrider": {
            "rounds": 14,
            "speculative_rounds": 13,
            "drafted_tokens": 28,
            "accepted_tokens": 14,
            "trimmed_tokens": 0,
            "protocols": {"token_ids": 13, "none": 1},
            "payload_bits": {"up": 1120, "down": 896},
            "lossless": True,
            "sampling": {"temperature": 1.0},
            "verification": "lossless",
            "slo": {
                "class": "best_effort",
                "promised_tokens_per_s": None,
                "achieved_tokens_per_s": 11.384,
                "kept": True,
                "cause": None,
                "times_behind": 0,
                "late_rounds": {"queue": 7, "compute": 3},
            },
        },
    }


def test_a_chat_is_openais() -> None:
    chat = ChatCompletion.model_validate(post(TextService(), "/v1/chat/completions", CHAT).json())
    assert chat.object == "chat.completion"
    assert (chat.choices[0].message.role, chat.choices[0].message.content) == ("assistant", ALL_TEXT)
    assert chat.choices[0].finish_reason == "length"


def test_a_stop_string_ends_a_response_and_its_tokens_are_counted() -> None:
    service = TextService()
    completion = post(service, "/v1/completions", COMPLETION | {"stop": [" over", "never"]}).json()
    assert completion["choices"][0]["text"] == "The quick 🦊 jumps"
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["usage"]["completion_tokens"] == len(TOKENIZER.encode("The quick 🦊 jumps over"))


def test_events_carry_the_usage_so_far_if_asked() -> None:
    """So that a load generator need not guess how many tokens an event stands for."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, _ = events_of(
        post(TextService(), "/v1/chat/completions", CHAT | {"stream": True, "stream_options": options})
    )
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[1] == 3, "one round's tokens with the first text"
    assert counts[-1] == events[-2]["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize("asked", [{}, {"logprobs": True, "top_logprobs": 1}, {"outrider": {"spans": True}}])
def test_every_event_is_the_same_bytes_whichever_encoder_wrote_it(asked: dict[str, object]) -> None:
    says = 'quoted "text" \\ / \x00\x1f\x7f\t\n\u2028 <b>&amp;</b> 漢字 🦊 e\u0301 '
    options = {"stream_options": {"include_usage": True}}
    service = TextService(texts=(says * 2,), floor=-1e-5)
    response = post(service, "/v1/chat/completions", CHAT | asked | {"stream": True} | options)
    *events, _, _ = response.text.split("\n\n")
    assert len(events) > 3
    for event in events:
        data = event.removeprefix("data: ")
        assert data == json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":"))


def test_a_streamed_chat_has_role_text_reason_and_usage_in_this_order() -> None:
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    *events, done = events_of(post(TextService(), "/v1/chat/completions", body))
    first, *texts, last, usage = [ChatCompletionChunk.model_validate(event) for event in events]
    assert done == "[DONE]"
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert all(text.choices[0].delta.content and text.choices[0].finish_reason is None for text in texts)
    assert "".join(text.choices[0].delta.content or "" for text in texts) == ALL_TEXT
    assert last.choices[0].finish_reason == "length"
    assert last.choices[0].delta.content is None
    assert usage.choices == []
    assert events[-1]["usage"]["completion_tokens"] == 40
    assert all(event["usage"] is None for event in events[:-1])
    assert len({(event["id"], event["created"]) for event in events}) == 1


def test_a_streamed_completion_has_text_and_reason() -> None:
    *events, done = events_of(post(TextService(), "/v1/completions", COMPLETION | {"stream": True}))
    assert done == "[DONE]"
    *texts, last = [event["choices"][0] for event in events]
    assert all(choice["text"] and choice["finish_reason"] is None for choice in texts)
    assert "".join(choice["text"] for choice in texts) == ALL_TEXT
    assert (last["text"], last["finish_reason"]) == ("", "length")
    assert Completion.model_validate(events[-1]).object == "text_completion"
    assert all("usage" not in event for event in events)


def test_seeds_are_drawn_afresh_unless_given() -> None:
    service = TextService()
    for seed in (None, None, -1):
        post(service, "/v1/completions", COMPLETION | {"seed": seed})
    first, second, given_seed = (request.params.seed for request in service.requests)
    assert first != second
    assert given_seed == 2**64 - 1
    assert len({request.generation for request in service.requests}) == 3


@pytest.mark.parametrize(
    ("error", "status", "code", "retry"),
    [
        (BusyError("full"), 429, "busy", "1"),
        (BackPressureError(num_queued_requests=3, max_queued_requests=2), 429, "busy", "1"),
        (ContextTooLongError("needs a shorter prompt"), 400, "context_length_exceeded", None),
        (GenerationFailedError("secret"), 503, "unavailable", "1"),
        (RuntimeError("secret"), 500, "internal_error", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_the_first_chunk_is_an_http_error(
    error: Exception, status: int, code: str, retry: str | None, *, stream: bool
) -> None:
    service = TextService(trouble_at=0, error=error)
    response = post(service, "/v1/chat/completions", CHAT | {"stream": stream})
    assert (response.status_code, error_of(response)["code"]) == (status, code)
    assert response.headers.get("retry-after") == retry
    assert "secret" not in response.text


def test_an_error_amid_a_stream_is_its_last_event() -> None:
    service = TextService(trouble_at=6, error=GenerationFailedError("secret"))
    response = post(service, "/v1/completions", COMPLETION | {"stream": True})
    *texts, error = events_of(response)
    assert response.status_code == 200
    assert "".join(event["choices"][0]["text"] for event in texts) == TOKENIZER.decode(TOKENIZER.encode(TEXT)[:6])
    assert error["error"]["code"] == "unavailable"
    assert "secret" not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_has_said_all_is_not_cancelled(*, stream: bool) -> None:
    service = TextService()
    post(service, "/v1/completions", COMPLETION | {"stream": stream, "stop": "quick"})
    assert (service.said_all, service.cancelled) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_without_a_finish_reason_is_an_error(*, stream: bool) -> None:
    class CutShort(TextService):
        async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
            async for chunk in super().generate(request):
                yield replace(chunk, finish_reason=None)

    response = post(CutShort(), "/v1/completions", COMPLETION | {"stream": stream})
    error = events_of(response)[-1]["error"] if stream else error_of(response)
    assert error["code"] == "unavailable"


def test_an_error_amid_a_whole_response_is_an_http_error() -> None:
    service = TextService(trouble_at=6, error=GenerationFailedError("secret"))
    assert post(service, "/v1/completions", COMPLETION).status_code == 503


@pytest.mark.parametrize("trouble_at", [0, 6])
def test_a_late_chunk_is_a_timeout_and_cancels_the_response(trouble_at: int) -> None:
    late_first = replace(SETTINGS, first_chunk_deadline_s=0.01, next_chunk_deadline_s=30)
    late_next = replace(SETTINGS, first_chunk_deadline_s=30, next_chunk_deadline_s=0.01)
    service = TextService(settings=late_next if trouble_at else late_first, trouble_at=trouble_at)
    response = post(service, "/v1/completions", COMPLETION)
    assert (response.status_code, error_of(response)["code"]) == (504, "timeout")
    assert service.cancelled == 1


@pytest.mark.parametrize(("stream", "trouble_at"), [(False, 0), (False, 6), (True, 0), (True, 6)])
def test_a_client_that_hangs_up_cancels_its_response(trouble_at: int, *, stream: bool) -> None:
    async def hang_up() -> None:
        service = TextService(trouble_at=trouble_at)
        connection = Connection("/v1/completions", COMPLETION | {"stream": stream})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        assert bool(connection.sent) == (stream and trouble_at > 0)
        assert service.cancelled == 0
        connection.hung_up.set()
        await serving
        assert service.cancelled == 1

    within(hang_up())


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_begun_for_a_client_that_has_gone(*, stream: bool) -> None:
    async def gone() -> None:
        service = TextService()
        connection = Connection("/v1/completions", COMPLETION | {"stream": stream})
        connection.hung_up.set()
        await make_api(service)(connection.scope, connection.receive, connection.send)
        assert (service.requests, connection.sent) == ([], [])

    within(gone())


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_cancelled_by_its_server_cancels_its_response(*, stream: bool) -> None:
    async def cancel() -> None:
        service = TextService(trouble_at=6)
        connection = Connection("/v1/completions", COMPLETION | {"stream": stream})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert service.cancelled == 1

    within(cancel())
