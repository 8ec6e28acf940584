"""Span contexts in the form of W3C Trace Context: the header ``traceparent``.

Inside the service only sampled requests carry one; "" stands for none.
"""

import re
from dataclasses import dataclass

_VERSION, _SAMPLED = "00", 1
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class SpanContext:
    """Identity of a span, by which its children name their parent."""

    trace_id: str  # 32 digits of lower-case hexadecimal, not all zero
    span_id: str  # 16 of them, likewise

    def traceparent(self, *, sampled: bool = True) -> str:
        return f"{_VERSION}-{self.trace_id}-{self.span_id}-{_SAMPLED if sampled else 0:02x}"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller's span as its ``traceparent`` names it, and whether it is sampled."""

    context: SpanContext
    sampled: bool


def read_traceparent(header: str) -> Caller | None:
    """Parse a header; None if it is malformed, which is then ignored as W3C Trace Context demands."""
    found = _FORM.fullmatch(header.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == _VERSION and more is not None):
        return None
    if not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return Caller(SpanContext(trace_id, span_id), bool(int(flags, 16) & _SAMPLED))


def trace_id_of(traceparent: str) -> str | None:
    """Return the trace id for a log line; None for an empty or malformed header."""
    caller = read_traceparent(traceparent) if traceparent else None
    return None if caller is None else caller.context.trace_id
