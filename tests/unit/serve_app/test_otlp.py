"""Spans sent for real, to a collector that reads them by OpenTelemetry's own definitions; or to none."""

import importlib.util
import json
import random
import time
from http import HTTPStatus
from pathlib import Path

import pytest

from outrider.config.reading import parse_config
from outrider.config.schema import Config, TracingConfig
from outrider.contracts.errors import ConfigError
from outrider.events import JsonLines
from outrider.tracing.spans import Ids, Span, SpanEvent, SpanKind, SpanLink
from serve_app.app import build_app
from serve_app.otlp import SpanExport, traces_url
from serve_app.spans import check_installed, span_sink
from tests.collector import SERVER, collecting
from tests.unit.serve_app.api.listening import free_port

IDS = Ids(random.Random(5).getrandbits)
AT_S = 1_764_000_000.25
ROOT, OTHER = IDS.root(), IDS.root()
CHILD = Span(
    "child",
    IDS.child(ROOT),
    ROOT.span_id,
    AT_S,
    AT_S + 1.5,
    kind=SpanKind.SERVER,
    remote=True,
    attributes={"text": "t", "count": 3, "share": 0.5, "is": True, "several": ("a", "b")},
    events=(SpanEvent("happened", AT_S + 1.0, {"reason": "r"}),),
    links=(SpanLink(OTHER, {"n": 1}),),
    error="broken",
)
PARENT = Span("parent", ROOT, None, AT_S, AT_S + 2.0)


def sent(config: TracingConfig, *spans: Span) -> None:
    export = SpanExport(config, "ingress 1")
    for span in spans:
        export.emit(span)
    export.close()


def test_a_span_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with collecting() as collector:
        sent(TracingConfig(enabled=True, endpoint=collector.url), CHILD, PARENT)
    child, parent = sorted(collector.spans, key=lambda span: span.name)
    assert collector.paths == {"/v1/traces"}
    assert (child.trace_id, child.span_id, child.parent_id) == (ROOT.trace_id, CHILD.context.span_id, ROOT.span_id)
    assert (parent.trace_id, parent.span_id, parent.parent_id) == (ROOT.trace_id, ROOT.span_id, "")
    assert (child.began_ns, child.ended_ns) == (int(AT_S * 1e9), int((AT_S + 1.5) * 1e9))
    assert (child.kind, child.failed, parent.failed) == (SERVER, True, False)
    assert child.attributes == CHILD.attributes
    assert child.events == (("happened", {"reason": "r"}),)
    assert child.links == ((OTHER.trace_id, OTHER.span_id),)
    assert child.resource["service.name"] == "mine"
    assert child.resource["service.instance.id"] == "ingress 1"


def test_one_strange_value_costs_no_batch() -> None:
    strange = Span("strange", IDS.root(), None, AT_S, AT_S, attributes={"path": Path("/a")})  # type: ignore[dict-item]  # on purpose
    with collecting() as collector:
        sent(TracingConfig(enabled=True, endpoint=collector.url), strange, PARENT)
    assert {span.name: span.attributes.get("path") for span in collector.spans} == {"strange": "/a", "parent": None}


def test_what_is_not_configured_is_the_environments_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        sent(TracingConfig(enabled=True), PARENT)
    (span,) = collector.spans
    assert (span.resource["service.name"], span.resource["deployment.environment.name"]) == ("theirs", "test")
    assert [headers["x-key"] for headers in collector.headers] == ["secret"]


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://host/otlp/", "https://host/otlp/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        (None, None),
    ],
)
def test_an_address_is_a_collectors_or_its_page_for_traces(endpoint: str | None, url: str | None) -> None:
    assert traces_url(endpoint) == url


def test_a_collector_that_is_gone_costs_spans_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    export = SpanExport(TracingConfig(enabled=True, endpoint=f"http://127.0.0.1:{free_port()}"), "ingress 1")
    for _ in range(1000):
        export.emit(PARENT)
    export.close()
    export.emit(PARENT)  # what comes too late is lost, too
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records if record.name == "serve_app.otlp"]
    assert lines, "the log tells of it"
    assert {line["event"] for line in lines} == {"spans_not_exported"}
    assert not any(record.name.startswith("opentelemetry.exporter") for record in caplog.records)


def test_a_collector_that_comes_back_has_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE]
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with collecting(lambda: answers.pop() if answers else HTTPStatus.OK) as collector:
        export = SpanExport(TracingConfig(enabled=True, endpoint=collector.url), "ingress 1")
        export.emit(PARENT)
        give_up_at_s = time.monotonic() + 30.0
        while not collector.spans:
            assert time.monotonic() < give_up_at_s
            time.sleep(0.01)
        export.close()
    assert not answers


def test_off_nothing_is_made() -> None:
    assert span_sink(TracingConfig(), "ingress 1") is None


def test_what_is_missing_is_named_where_a_service_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str) -> object:
        if name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError(name)
        return found(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    check_installed(TracingConfig())
    config = parse_config("tracing: {enabled: true}", "my.yaml")
    with pytest.raises(ConfigError, match=r"tracing\.enabled needs OpenTelemetry \(pip install '\.\[tracing\]' in a"):
        build_app(config)
    assert not Config().tracing.enabled
