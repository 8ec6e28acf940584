"""Traces at the edge: what comes in by ``traceparent``, what is carried on, and what the request's span says."""

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    http_attributes,
    url_attributes,
)

from outrider.contracts.errors import GenerationFailedError
from outrider.contracts.tracing import SpanContext, read_traceparent
from outrider.events import JsonLines
from outrider.tracing.spans import Span, SpanKind
from serve_app.api.http.routes import make_api
from serve_app.api.tracing import RequestTraces
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, JSON, Connection, within
from tests.unit.serve_app.api.text_service import MODEL, TOKENS_PER_ROUND, TextService

CALLER = SpanContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
BY_CALLER = {"traceparent": CALLER.traceparent()}
AT_S = 1_764_000_000.0


class Ingress:
    """The API over a text service, and what it has told."""

    def __init__(self, service: TextService | None = None, ratio: float = 0.0) -> None:
        self.service, self.spans = service or TextService(), list[Span]()
        self.traces = RequestTraces(self.spans.append, ratio, random.Random(1).getrandbits, lambda: AT_S)
        self.api = make_api(self.service, traces=self.traces)

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = BY_CALLER
    ) -> httpx.Response:
        """One request."""

        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(self.api)
            async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
                content = None if body is None else json.dumps(body)
                return await client.request(method, path, content=content, headers={**JSON, **headers})

        return within(once())


def returned(response: httpx.Response) -> SpanContext:
    caller = read_traceparent(response.headers["traceparent"])
    assert caller is not None
    assert caller.sampled
    return caller.context


@pytest.mark.parametrize("stream", [False, True])
def test_a_callers_trace_goes_on_in_every_choice_and_comes_back(*, stream: bool) -> None:
    ingress = Ingress()
    response = ingress.ask("POST", "/v1/chat/completions", CHAT | {"n": 2, "stream": stream})
    (span,) = ingress.spans
    assert (span.context.trace_id, span.parent_id) == (CALLER.trace_id, CALLER.span_id)
    assert returned(response) == span.context
    assert [request.trace for request in ingress.service.requests] == 2 * [span.context.traceparent()]
    assert (span.name, span.kind, span.remote) == ("POST /v1/chat/completions", SpanKind.SERVER, True)
    assert span.error is None


def test_what_a_span_says_has_opentelemetrys_names() -> None:
    ingress = Ingress(TextService(texts=["Rumpelstiltskin"]))
    ingress.ask("POST", "/v1/completions", COMPLETION | {"prompt": "Rumpelstiltskin", "temperature": 0.5})
    (span,) = ingress.spans
    known = {
        name
        for module in (gen_ai_attributes, http_attributes, url_attributes, error_attributes)
        for name in vars(module).values()
        if isinstance(name, str)
    }
    assert {name for name in span.attributes if not name.startswith("outrider.")} <= known
    assert "Rumpelstiltskin" not in str(span), "no word of what was said"
    said = span.attributes
    assert (said["http.request.method"], said["http.route"], said["url.path"]) == (
        "POST",
        "/v1/completions",
        "/v1/completions",
    )
    assert said["http.response.status_code"] == 200
    assert (said["gen_ai.operation.name"], said["gen_ai.request.model"]) == ("text_completion", MODEL)
    assert said["gen_ai.request.temperature"] == 0.5
    assert said["gen_ai.response.finish_reasons"] == ("length",)
    assert int(str(said["gen_ai.usage.output_tokens"])) > 1


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_an_unsampled_caller_is_told_its_trace_and_nothing_is_carried(ratio: float) -> None:
    ingress = Ingress(ratio=ratio)
    headers = {"traceparent": CALLER.traceparent(sampled=False)}
    response = ingress.ask("POST", "/v1/completions", COMPLETION, headers)
    caller = read_traceparent(response.headers["traceparent"])
    assert caller is not None
    assert (caller.context.trace_id, caller.sampled) == (CALLER.trace_id, False)
    assert not ingress.spans
    assert [request.trace for request in ingress.service.requests] == [""]


def test_who_says_nothing_is_sampled_by_the_ratio() -> None:
    for ratio, sampled in ((0.0, False), (1.0, True)):
        ingress = Ingress(ratio=ratio)
        response = ingress.ask("POST", "/v1/completions", COMPLETION, {})
        assert ("traceparent" in response.headers) is sampled
        assert [bool(request.trace) for request in ingress.service.requests] == [sampled]
        assert [span.parent_id for span in ingress.spans] == ([None] if sampled else [])
        assert not any(span.remote for span in ingress.spans)


def test_without_tracing_a_header_is_no_more_than_that() -> None:
    service = TextService()

    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make_api(service)), base_url="http://a") as client:
            return await client.post("/v1/completions", json=COMPLETION, headers=BY_CALLER)

    assert "traceparent" not in within(once()).headers
    assert [request.trace for request in service.requests] == [""]


def test_probes_and_pages_are_no_traces() -> None:
    ingress = Ingress(ratio=1.0)
    for path in ("/health", "/metrics", "/v1/models"):
        assert "traceparent" not in ingress.ask("GET", path).headers
    assert not ingress.spans


@pytest.mark.parametrize(
    ("path", "body", "name", "status", "code"),
    [
        ("/v1/completions", COMPLETION | {"temperature": 9}, "POST /v1/completions", 400, "invalid_value"),
        ("/v1/" + "x" * 500, COMPLETION, "POST", 404, None),
    ],
)
def test_what_a_client_did_wrong_is_no_error_of_ours(
    path: str, body: object, name: str, status: int, code: str | None
) -> None:
    ingress = Ingress()
    assert ingress.ask("POST", path, body).status_code == status
    (span,) = ingress.spans
    assert (span.name, span.error) == (name, None)
    assert span.attributes["http.response.status_code"] == status
    assert span.attributes.get("error.type") == code
    assert len(str(span.attributes["url.path"])) <= 200


@pytest.mark.parametrize(("trouble_at", "status"), [(0, 503), (TOKENS_PER_ROUND, 200)], ids=["before", "behind"])
def test_what_we_did_wrong_is(trouble_at: int, status: int) -> None:
    """An error before the first token is a status; behind it, an event of the stream."""
    service = TextService(trouble_at=trouble_at, error=GenerationFailedError("lost"))
    ingress = Ingress(service)
    assert ingress.ask("POST", "/v1/completions", COMPLETION | {"stream": True}).status_code == status
    (span,) = ingress.spans
    assert span.error == span.attributes["error.type"] == "unavailable"


def test_a_client_that_leaves_ends_its_trace() -> None:
    ingress = Ingress(TextService(trouble_at=TOKENS_PER_ROUND), ratio=1.0)

    async def leave() -> None:
        connection = Connection("/v1/completions", COMPLETION | {"stream": True})
        asking = asyncio.create_task(ingress.api(connection.scope, connection.receive, connection.send))
        await ingress.service.hanging.wait()
        connection.hung_up.set()
        await asking

    within(leave())
    (span,) = ingress.spans
    assert [event.name for event in span.events] == ["client_left"]
    assert span.error is None


def test_a_resumed_response_stays_in_its_trace() -> None:
    ingress = Ingress(TextService(trouble_at=TOKENS_PER_ROUND), ratio=1.0)

    async def resume() -> None:
        connection = Connection("/v1/completions", COMPLETION)
        asking = asyncio.create_task(ingress.api(connection.scope, connection.receive, connection.send))
        await ingress.service.hanging.wait()
        (request,) = ingress.service.requests
        ingress.traces.resumed(request, 1)
        connection.hung_up.set()
        await asking
        ingress.traces.resumed(request, 2)  # nobody asks for it any more

    within(resume())
    (span,) = ingress.spans
    resumed, _ = span.events
    assert (resumed.name, resumed.attributes["outrider.attempt"]) == ("response_resumed", 1)


def test_lines_of_the_log_name_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ingress = Ingress()
    ingress.ask("POST", "/v1/completions", COMPLETION)
    ingress.ask("POST", "/v1/completions", COMPLETION, {})
    lines: list[dict[str, Any]] = [
        json.loads(JsonLines().format(record)) for record in caplog.records if record.msg == "request_finished"
    ]
    assert [line.get("trace_id") for line in lines] == [CALLER.trace_id, None]
