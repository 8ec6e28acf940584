"""Spans as data. Only the exporter knows OpenTelemetry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outrider.contracts.tracing import SpanContext

Value = str | bool | int | float | tuple[str, ...]
Emit = Callable[["Span"], None]  # never blocks, never raises

_TRACE_BITS, _SPAN_BITS = 128, 64


class SpanKind(StrEnum):
    INTERNAL = "internal"
    SERVER = "server"  # it answers a call from another process


@dataclass(frozen=True, slots=True)
class SpanEvent:
    name: str
    at_s: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanLink:
    context: SpanContext
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span. Times are seconds since 1970."""

    name: str
    context: SpanContext
    parent_id: str | None  # the parent's ``span_id``, of the same trace; None for a trace's first span
    began_at_s: float
    ended_at_s: float
    kind: SpanKind = SpanKind.INTERNAL
    remote: bool = False  # whether the parent belongs to another process
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None  # short description of its failure; None if it did not fail


class Ids:
    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self._random_bits = random_bits

    def root(self) -> SpanContext:
        return SpanContext(f"{self._draw(_TRACE_BITS):032x}", self._span_id())

    def child(self, parent: SpanContext) -> SpanContext:
        return SpanContext(parent.trace_id, self._span_id())

    def _span_id(self) -> str:
        return f"{self._draw(_SPAN_BITS):016x}"

    def _draw(self, bits: int) -> int:
        return self._random_bits(bits) or 1  # an id of all zeros is invalid
