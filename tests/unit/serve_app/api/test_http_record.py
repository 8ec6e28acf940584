import asyncio
import json
import logging
from typing import Any

import pytest

from outrider.contracts.errors import GenerationFailedError
from outrider.events import JsonLines
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, Connection, ask, post, within
from tests.unit.serve_app.api.text_service import TextService

SECRET = "Rumpelstiltskin"  # noqa: S105 - what a user says


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def events_in(written: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What the API logged, as a reader of the log sees it."""
    lines = [JsonLines().format(record) for record in written.records if record.name.startswith("serve_app")]
    assert not any(SECRET in line for line in lines)
    return [json.loads(line) for line in lines]


def without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_logged_once_in_numbers(written: pytest.LogCaptureFixture, *, stream: bool) -> None:
    body = CHAT | {"messages": [{"role": "user", "content": SECRET}], "n": 2, "stream": stream}
    post(TextService(texts=[SECRET]), "/v1/chat/completions", body, **{"x-request-id": "mine"})
    (event,) = events_in(written)
    tokens = event["completion_tokens"] // 2
    assert event["seconds"] > 0
    assert event["prompt_tokens"] > 1
    assert tokens > 1
    assert without(event, "time", "seconds", "prompt_tokens", "completion_tokens") == {
        "level": "info",
        "logger": "serve_app.api.http.record",
        "event": "request_finished",
        "request_id": "mine",
        "path": "/v1/chat/completions",
        "status": 200,
        "finish_reasons": ["length", "length"],
        "choices": 2,
        "stream": stream,
    }


def test_a_refusal_is_logged_without_what_was_refused(written: pytest.LogCaptureFixture) -> None:
    post(TextService(), "/v1/completions", COMPLETION | {"temperature": SECRET})
    (event,) = events_in(written)
    assert (event["event"], event["status"], event["code"]) == ("request_finished", 400, "invalid_value")


def test_what_is_only_read_is_not_logged(written: pytest.LogCaptureFixture) -> None:
    ask(TextService(), "GET", "/health")
    assert events_in(written) == []


@pytest.mark.parametrize(("stream", "trouble_at", "status"), [(False, 6, 503), (True, 0, 503), (True, 6, 200)])
def test_a_failure_is_logged_with_its_cause(
    written: pytest.LogCaptureFixture, trouble_at: int, status: int, *, stream: bool
) -> None:
    service = TextService(trouble_at=trouble_at, error=GenerationFailedError("the verifier broke"))
    post(service, "/v1/completions", COMPLETION | {"prompt": SECRET, "stream": stream})
    failed, finished = events_in(written)
    assert (failed["event"], failed["level"], failed["error"]) == ("request_failed", "error", "GenerationFailedError")
    assert "the verifier broke" in failed["traceback"]
    assert failed["request_id"] == finished["request_id"]
    assert (finished["event"], finished["status"], finished["code"]) == ("request_finished", status, "unavailable")


@pytest.mark.parametrize("by_server", [False, True])
def test_a_client_that_leaves_is_logged(written: pytest.LogCaptureFixture, *, by_server: bool) -> None:
    async def leave() -> None:
        service = TextService(trouble_at=6)
        connection = Connection("/v1/completions", COMPLETION | {"stream": True})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        if by_server:
            serving.cancel()
        else:
            connection.hung_up.set()
        await asyncio.wait([serving])

    within(leave())
    (event,) = events_in(written)
    assert (event["event"], event["request_id"], event["completion_tokens"]) == ("request_cancelled", "the-request", 6)
