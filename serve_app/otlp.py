"""Exports spans to a collector: OTLP over HTTP, in batches, from a thread of its own.

This is the only module that imports OpenTelemetry; a service without tracing does not import it (``spans``). The queue
is bounded and its newest spans replace the oldest, so a collector that is slow or gone costs spans, never a request.
OpenTelemetry's environment variables (``OTEL_EXPORTER_OTLP_*``, ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``,
``OTEL_BSP_*``) set what the configuration leaves open.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext
from opentelemetry.trace import SpanKind as OtelKind

import outrider
from outrider.config.schema import TracingConfig
from outrider.contracts.tracing import SpanContext
from outrider.events import event
from outrider.tracing.spans import Span, SpanKind, Value

_TRACES_PATH = "/v1/traces"
_TOLD_EVERY_S = 60.0
_NAME = "outrider"
_KINDS = {SpanKind.INTERNAL: OtelKind.INTERNAL, SpanKind.SERVER: OtelKind.SERVER}

log = logging.getLogger(__name__)


def traces_url(endpoint: str | None) -> str | None:
    """Return the URL for spans of an endpoint given as for ``OTEL_EXPORTER_OTLP_ENDPOINT``; None: by that variable."""
    if endpoint is None:
        return None
    address = endpoint.rstrip("/")
    return address if address.endswith(_TRACES_PATH) else f"{address}{_TRACES_PATH}"


class SpanExport:
    def __init__(self, config: TracingConfig, instance: str) -> None:
        """Start the exporting thread; ``instance`` distinguishes this process's spans from others'."""
        name = os.environ.get("OTEL_SERVICE_NAME") or _NAME
        version = outrider.__version__
        self._resource = Resource.create(
            {"service.name": name, "service.instance.id": instance, "service.version": version}
        )
        self._scope = InstrumentationScope(_NAME, version)
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(
            logging.CRITICAL
        )  # it logs each failed try; ``_LoggingExporter`` logs once a minute
        self._processor = BatchSpanProcessor(_LoggingExporter(OTLPSpanExporter(endpoint=traces_url(config.endpoint))))

    def emit(self, span: Span) -> None:
        """Queue a span; neither waits nor raises."""
        try:
            self._processor.on_end(self._readable(span))
        except Exception:  # a lost span must not fail a response
            log.exception("span_lost")

    def close(self) -> None:
        """Send the queued spans and end. Blocks, for some seconds if the collector is gone."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        """Convert a span to the SDK's class. The SDK's tracers cannot be used: they time spans while they are open."""
        parent = None
        if span.parent_id is not None:
            parent = _context(SpanContext(span.context.trace_id, span.parent_id), remote=span.remote)
        return ReadableSpan(
            span.name,
            context=_context(span.context),
            parent=parent,
            resource=self._resource,
            attributes=_attributes(span.attributes),
            events=[Event(each.name, _attributes(each.attributes), _ns(each.at_s)) for each in span.events],
            links=[Link(_context(each.context), _attributes(each.attributes)) for each in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=_ns(span.began_at_s),
            end_time=_ns(span.ended_at_s),
            instrumentation_scope=self._scope,
        )


class _LoggingExporter(SpanExporter):
    """Wraps an exporter, and logs once a minute at most how many spans could not be sent."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost, self._told_at_s = 0, float("-inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export as the wrapped exporter, with its retries; spans that it fails to send are lost."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            now_s = time.monotonic()
            if now_s - self._told_at_s >= _TOLD_EVERY_S:
                event(log, "spans_not_exported", logging.WARNING, spans=self._lost)
                self._lost, self._told_at_s = 0, now_s
        return result

    def shutdown(self) -> None:
        """Shut the wrapped exporter down, which ends its retries."""
        self._exporter.shutdown()


def _context(context: SpanContext, *, remote: bool = False) -> OtelContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return OtelContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=remote, trace_flags=sampled)


def _attributes(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Convert values of types that OpenTelemetry does not know to text: one such value would fail a whole batch."""
    return {
        name: value if isinstance(value, str | bool | int | float | tuple) else str(value)
        for name, value in attributes.items()
    }


def _ns(at_s: float) -> int:
    return int(at_s * 1e9)
