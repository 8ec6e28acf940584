"""Spans as data. Whoever exports them knows OpenTelemetry; nobody else does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outrider.contracts.tracing import SpanContext

Value = str | bool | int | float | tuple[str, ...]
Emit = Callable[["Span"], None]  # never blocks, never raises

_TRACE_BITS, _SPAN_BITS = 128, 64


class SpanKind(StrEnum):
    """OpenTelemetry's, as far as there are any."""

    INTERNAL = "internal"
    SERVER = "server"  # it answers a call from another process


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span."""

    name: str
    at_s: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span that has to do with this one, and is no parent of it."""

    context: SpanContext
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One that is over. Times are seconds since 1970.

    Attributes:
        parent_id: the parent's ``span_id``, of the same trace; None of a trace's first.
        remote: whether the parent is another process's.
        error: what it failed by, in few words; None where it did not.
    """

    name: str
    context: SpanContext
    parent_id: str | None
    began_at_s: float
    ended_at_s: float
    kind: SpanKind = SpanKind.INTERNAL
    remote: bool = False
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None


class Ids:
    def __init__(self, random_bits: Callable[[int], int]) -> None:
        """``random_bits(n)`` draws an integer of n bits."""
        self._random_bits = random_bits

    def root(self) -> SpanContext:
        """Of a trace of its own."""
        return SpanContext(f"{self._draw(_TRACE_BITS):032x}", self._span_id())

    def child(self, parent: SpanContext) -> SpanContext:
        """Of the parent's trace."""
        return SpanContext(parent.trace_id, self._span_id())

    def _span_id(self) -> str:
        return f"{self._draw(_SPAN_BITS):016x}"

    def _draw(self, bits: int) -> int:
        return self._random_bits(bits) or 1  # all zero says that there is none
