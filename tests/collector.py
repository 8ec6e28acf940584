"""A collector of traces: an HTTP server that takes OTLP as OpenTelemetry's own protobuf definitions read it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.http_server import http_server

SERVER = trace_pb2.Span.SPAN_KIND_SERVER


@dataclass(frozen=True)
class Received:
    """One span, in Python's own types; times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: Mapping[str, object]
    events: tuple[tuple[str, Mapping[str, object]], ...]
    links: tuple[tuple[str, str], ...]  # trace and span
    resource: Mapping[str, object]

    def within(self, other: "Received") -> bool:
        """Whether it lies in the other's time."""
        return other.began_ns <= self.began_ns <= self.ended_ns <= other.ended_ns


@dataclass
class Collector:
    """What has come so far."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def trace(self, trace_id: str) -> list[Received]:
        """Its spans, by when they began."""
        return sorted((span for span in list(self.spans) if span.trace_id == trace_id), key=lambda span: span.began_ns)

    def named(self, trace_id: str, name: str) -> list[Received]:
        """Those of a name."""
        return [span for span in self.trace(trace_id) if span.name == name]


@contextmanager
def collecting(answer: Callable[[], HTTPStatus] = lambda: HTTPStatus.OK) -> Iterator[Collector]:
    """Run one while the block is open; ``answer`` says what senders are told."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = answer()
            if status is HTTPStatus.OK:
                collector.paths.add(self.path)
                collector.headers.append(dict(self.headers))
                collector.spans += received(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with http_server(Handler) as collector.url:
        yield collector


def received(body: bytes) -> list[Received]:
    """What one request brings."""
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return [
        Received(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            kind=span.kind,
            began_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
            failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
            attributes=_read(span.attributes),
            events=tuple((event.name, _read(event.attributes)) for event in span.events),
            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            resource=_read(resource_spans.resource.attributes),
        )
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def _read(attributes: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    return None if kind is None else getattr(value, kind)
