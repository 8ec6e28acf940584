"""Where a process's spans go: to a collector, if the configuration says so; else nothing of it is loaded."""

import asyncio
import importlib.util
import logging
from typing import Protocol

from actors.waiting import within
from outrider.config.schema import TracingConfig
from outrider.contracts.errors import ConfigError
from outrider.events import event
from outrider.tracing.spans import Span

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
_LAST_S = 3.0  # for what is left when a process ends

log = logging.getLogger(__name__)


class SpanSink(Protocol):
    def emit(self, span: Span) -> None:
        """Take one; neither waits nor raises."""
        ...

    def close(self) -> None:
        """Send what is left; blocks."""
        ...


def check_installed(config: TracingConfig) -> None:
    """Find out where a service is started, not in its processes.

    Raises:
        ConfigError: requests are to be traced, and what exports spans is not installed.
    """
    if config.enabled and not all(map(_is_there, _NEEDED)):
        raise ConfigError("tracing.enabled", "OpenTelemetry (pip install '.[tracing]' in a checkout), or false", True)


def span_sink(config: TracingConfig, instance: str) -> SpanSink | None:
    """Begin to export; None: nothing is traced. ``instance`` tells this process's spans from those of others.

    Raises:
        ConfigError: as ``check_installed``.
    """
    if not config.enabled:
        return None
    check_installed(config)
    from serve_app.otlp import SpanExport  # noqa: PLC0415

    return SpanExport(config, instance)


async def close(sink: SpanSink | None) -> None:
    """Send what is left, for as long as the end of a process may wait for that."""
    if sink is None:
        return
    try:
        await within(_LAST_S, asyncio.to_thread(sink.close))
    except TimeoutError:
        event(log, "spans_not_exported", logging.WARNING, reason="the process ends")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
