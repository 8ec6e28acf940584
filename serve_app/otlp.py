"""Spans on their way to a collector: OTLP over HTTP, in batches, from a thread of its own.

The only module that knows OpenTelemetry; a service that is not traced does not load it (``spans``). The queue is
bounded and its newest spans push out the oldest, so a collector that is slow or gone costs spans, never a request. What
the configuration leaves open is OpenTelemetry's to say, by its environment variables (``OTEL_EXPORTER_OTLP_*``,
``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_BSP_*``).
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
    """Where spans are sent, of a collector's address as ``OTEL_EXPORTER_OTLP_ENDPOINT`` has it; None: as that says."""
    if endpoint is None:
        return None
    address = endpoint.rstrip("/")
    return address if address.endswith(_TRACES_PATH) else f"{address}{_TRACES_PATH}"


class SpanExport:
    def __init__(self, config: TracingConfig, instance: str) -> None:
        """Begin; ``instance`` tells this process's spans from those of others."""
        name = config.service_name or os.environ.get("OTEL_SERVICE_NAME") or _NAME
        version = outrider.__version__
        self._resource = Resource.create(
            {"service.name": name, "service.instance.id": instance, "service.version": version}
        )
        self._scope = InstrumentationScope(_NAME, version)
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(
            logging.CRITICAL
        )  # of each try; see ``_LoggingExporter``
        self._processor = BatchSpanProcessor(_LoggingExporter(OTLPSpanExporter(endpoint=traces_url(config.endpoint))))

    def emit(self, span: Span) -> None:
        """Take a span: this neither waits nor raises."""
        try:
            self._processor.on_end(self._readable(span))
        except Exception:  # whoever made it has a response to make
            log.exception("span_lost")

    def close(self) -> None:
        """Send what is left, and end. Blocks: with a collector that is gone, for some seconds."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        """As the SDK has it. Its own tracers make spans while things happen; these have happened."""
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
    """Around another one; the log is told now and then that spans could not be sent."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost, self._told_at_s = 0, float("-inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Try for as long as that one does; spans that were not taken then are lost."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            now_s = time.monotonic()
            if now_s - self._told_at_s >= _TOLD_EVERY_S:
                event(log, "spans_not_exported", logging.WARNING, spans=self._lost)
                self._lost, self._told_at_s = 0, now_s
        return result

    def shutdown(self) -> None:
        """Give up what is being tried."""
        self._exporter.shutdown()


def _context(context: SpanContext, *, remote: bool = False) -> OtelContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return OtelContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=remote, trace_flags=sampled)


def _attributes(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """What OpenTelemetry does not know is written as text: one wrong value would cost a whole batch."""
    return {
        name: value if isinstance(value, str | bool | int | float | tuple) else str(value)
        for name, value in attributes.items()
    }


def _ns(at_s: float) -> int:
    return int(at_s * 1e9)
