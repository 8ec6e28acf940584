import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from ray.serve.exceptions import BackPressureError
from starlette.types import Message

from outrider.config import parse_config
from outrider.errors import BusyError, ContextTooLongError, GenerationFailedError
from outrider.types import GenerationChunk, GenerationRequest
from serve_app.http_api import make_api
from serve_app.openai_api import ChatBody, CompletionBody
from serve_app.service import ServiceSettings
from tests.unit.serve_app.text_service import MODEL, SETTINGS, TEXT, TOKENIZER, TextService

T = TypeVar("T")
JSON = {"content-type": "application/json"}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "Once upon", "max_tokens": 40}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40}
ALL_TEXT = TOKENIZER.decode(TOKENIZER.encode(TEXT)[:40])


def within(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


def ask(service: TextService, method: str, path: str, **request: Any) -> httpx.Response:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(make_api(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
            return await client.request(method, path, **request)

    return within(once())


def post(service: TextService, path: str, body: object, **headers: str) -> httpx.Response:
    return ask(service, "POST", path, content=json.dumps(body), headers=JSON | headers)


def events_of(response: httpx.Response) -> list[Any]:
    """The data of each server-sent event; ``[DONE]`` as a text."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = response.text.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event[6:] if event == "data: [DONE]" else json.loads(event[6:]) for event in events]


def error_of(response: httpx.Response) -> dict[str, Any]:
    error = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert isinstance(error, dict)
    return error


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
            "lossless": True,
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
    assert service.said_all
    assert not service.cancelled.is_set()


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
    assert service.cancelled.is_set()


class Connection:
    """One HTTP/1.1 request of a client that can hang up, as an ASGI server shows it to the application."""

    def __init__(self, path: str, body: object) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"content-type", b"application/json")],
            "server": ("outrider", 80),
            "client": ("client", 1),
        }
        self.hung_up = asyncio.Event()
        self.sent: list[Message] = []
        self._unread = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive(self) -> Message:
        if self._unread:
            return self._unread.pop()
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


@pytest.mark.parametrize(("stream", "trouble_at"), [(False, 0), (False, 6), (True, 0), (True, 6)])
def test_a_client_that_hangs_up_cancels_its_response(trouble_at: int, *, stream: bool) -> None:
    async def hang_up() -> None:
        service = TextService(trouble_at=trouble_at)
        connection = Connection("/v1/completions", COMPLETION | {"stream": stream})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        assert bool(connection.sent) == (stream and trouble_at > 0)
        assert not service.cancelled.is_set()
        connection.hung_up.set()
        await serving
        assert service.cancelled.is_set()

    within(hang_up())


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
        assert service.cancelled.is_set()

    within(cancel())


def test_models_are_listed_and_described() -> None:
    listed = ask(TextService(), "GET", "/v1/models").json()
    (card,) = listed["data"]
    assert listed["object"] == "list"
    assert Model.model_validate(card).id == MODEL
    assert card["max_model_len"] == 256
    assert ask(TextService(), "GET", f"/v1/models/{MODEL}").json()["id"] == MODEL
    unknown = ask(TextService(), "GET", "/v1/models/org/other")
    assert unknown.status_code == 404
    assert error_of(unknown)["message"] == "model needs one of: smollm2; found 'org/other'"


def test_health_is_the_process_and_ready_is_the_verifier() -> None:
    lost = TextService(is_ready=False)
    assert ask(lost, "GET", "/health").status_code == 200
    assert ask(TextService(), "GET", "/ready").json() == {"ready": True, "verifier": "answers"}
    not_ready = ask(lost, "GET", "/ready")
    assert (not_ready.status_code, not_ready.json()) == (503, {"ready": False, "verifier": "does not answer"})


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/completions/", "/docs", "/v1/chat/completions/../x", "/%00%ff"])
def test_unknown_paths_are_404_in_openais_form(path: str) -> None:
    response = ask(TextService(), "GET", path)
    assert (response.status_code, error_of(response)["code"]) == (404, "unknown_url")


def test_wrong_methods_are_405_and_say_which_is_right() -> None:
    response = ask(TextService(), "GET", "/v1/completions")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert error_of(response)["message"] == "needs the method POST for this URL, found GET /v1/completions"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_other_content_than_json_is_415(content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = ask(TextService(), "POST", "/v1/completions", content=json.dumps(COMPLETION), headers=headers)
    assert response.status_code == 415
    assert error_of(response)["message"] == f"needs Content-Type: application/json, found {content_type or 'none'}"


def test_the_content_type_may_have_parameters_and_capitals() -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = ask(TextService(), "POST", "/v1/completions", content=json.dumps(COMPLETION), headers=headers)
    assert response.status_code == 200


def test_a_body_has_a_largest_size() -> None:
    padding = SETTINGS.max_body_bytes - len(json.dumps(COMPLETION))
    for extra, status in ((0, 200), (1, 413)):
        content = json.dumps(COMPLETION) + " " * (padding + extra)
        assert ask(TextService(), "POST", "/v1/completions", content=content, headers=JSON).status_code == status


@pytest.mark.parametrize(
    ("given_id", "returned"),
    [
        (b"abc-123 {x}", "abc-123 {x}"),
        (b"  two words\t", "two words"),
        (b"caf\xc3\xa9\x7f!", "caf!"),
        (b"i" * 500, "i" * 128),
    ],
)
def test_a_request_id_is_returned_in_printable_form(given_id: bytes, returned: str) -> None:
    headers: list[tuple[bytes, bytes]] = [(b"x-request-id", given_id)]
    for path in ("/health", "/nowhere"):
        assert ask(TextService(), "GET", path, headers=headers).headers.get_list("x-request-id") == [returned]


def test_a_request_without_an_id_gets_one() -> None:
    ids = {
        ask(TextService(), "GET", "/health", headers=headers).headers["x-request-id"]
        for headers in ({}, {}, {"x-request-id": "\t"})
    }
    assert len(ids) == 3
    assert all(len(request_id) == 32 for request_id in ids)


def test_behind_a_server_that_returns_the_id_it_is_not_returned_twice() -> None:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(make_api(TextService(), returns_request_id=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
            return await client.get("/health")

    assert "x-request-id" not in within(once()).headers


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, 49152, 1e308, -0.0, "", "\x00", "<|im_end|>", "text", "user"])
    | st.floats()
    | st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "window", "5", "x\x00"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from([*CompletionBody.model_fields, *ChatBody.model_fields, "n", "logprobs", "tools", "unknown"])
BODIES = st.dictionaries(FIELDS, VALUES, max_size=4)


@settings(max_examples=300)
@given(st.sampled_from([("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]), BODIES, st.booleans())
def test_no_body_makes_a_server_error(
    valid: tuple[str, dict[str, Any]], fields: dict[str, Any], over_a_valid_one: bool
) -> None:
    path, body = valid
    service = TextService()
    response = post(service, path, body | fields if over_a_valid_one else fields)
    assert response.status_code in {200, 400, 404}
    assert (response.status_code == 200) == bool(service.requests)
    if response.status_code != 200:
        assert error_of(response)["message"]


@given(st.binary(max_size=60))
def test_no_bytes_make_a_server_error(content: bytes) -> None:
    assert ask(TextService(), "POST", "/v1/completions", content=content, headers=JSON).status_code == 400


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": "smollm2", "prompt": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"a":' * 8_000 + b"1" + b"}" * 8_000,
        b'{"model": "smollm2", "prompt": "x", "temperature": NaN}',
        b'{"model": "smollm2", "prompt": "x", "temperature": 1e999}',
        b'{"model": "smollm2", "prompt": "x", "temperature": -Infinity}',
        b'{"model": "smollm2", "prompt": "x", "seed": ' + b"9" * 4_000 + b"}",
        b'{"model": "smollm2", "prompt": "x", "seed": ' + b"9" * 40_000 + b"}",
        b'{"model": "smollm2", "prompt": "\\ud800"}',
        b'{"model": "smollm2", "prompt": "\xed\xa0\x80"}',
        b'{"model": "smollm2", "prompt": "x", "\\udfff": 1}',
        b'{"model": "smollm2", "prompt": [9223372036854775808]}',
        b'{"model": "smollm2", "prompt": [1e3]}',
        b'{"model": "smollm2", "prompt": "x", "logit_bias": {"\\u0000": 1}}',
        b'{"model": "smollm2", "prompt": "x", "prompt": 5}',
        b'\xef\xbb\xbf{"model": "smollm2", "prompt": "x"}',
    ],
)
def test_malicious_json_is_a_400(content: bytes) -> None:
    response = ask(TextService(), "POST", "/v1/completions", content=content, headers=JSON)
    assert response.status_code == 400
    assert len(error_of(response)["message"]) <= 600


def test_null_bytes_are_text_like_any_other() -> None:
    service = TextService()
    assert post(service, "/v1/completions", COMPLETION | {"prompt": "a\x00b"}).status_code == 200
    assert TOKENIZER.decode(list(service.requests[0].prompt_ids)) == "a\x00b"


def test_settings_are_taken_from_the_configuration() -> None:
    config = parse_config("model: {served_name: mine}\nlimits: {max_body_mib: 2, next_chunk_deadline_s: 700.0}", "test")
    taken = ServiceSettings.from_config(config)
    assert (taken.model_name, taken.target, taken.k_max) == ("mine", config.model.target, config.speculation.k_max)
    assert (taken.max_body_bytes, taken.next_chunk_deadline_s) == (2 * 2**20, 700.0)
