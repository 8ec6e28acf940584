"""Creates a process's span exporter if tracing is configured; otherwise OpenTelemetry is not imported."""

import asyncio
import importlib.util
import logging
from typing import TYPE_CHECKING

from actors.waiting import within
from outrider.config.schema import TracingConfig
from outrider.contracts.errors import ConfigError
from outrider.events import event

if TYPE_CHECKING:
    from serve_app.otlp import SpanExport

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
_LAST_S = 3.0  # deadline for the last spans when a process ends

log = logging.getLogger(__name__)


def check_installed(config: TracingConfig) -> None:
    """Check that OpenTelemetry is installed if it is needed: when a service is deployed, not in its replicas."""
    if config.enabled and not all(map(_is_there, _NEEDED)):
        raise ConfigError("tracing.enabled", "OpenTelemetry (pip install '.[tracing]' in a checkout), or false", True)


def span_sink(config: TracingConfig, instance: str) -> "SpanExport | None":
    """Return an exporter; None if tracing is off. ``instance`` distinguishes this process's spans from others'."""
    if not config.enabled:
        return None
    check_installed(config)
    from serve_app.otlp import SpanExport  # noqa: PLC0415

    return SpanExport(config, instance)


async def close(sink: "SpanExport | None") -> None:
    """Send the queued spans, within 3 s, and close the exporter."""
    if sink is None:
        return
    try:
        await within(_LAST_S, asyncio.to_thread(sink.close))
    except TimeoutError:
        event(log, "spans_not_exported", logging.WARNING, reason="the process ends")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
