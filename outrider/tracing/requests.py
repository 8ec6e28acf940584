"""Trace of one HTTP request at its ingress: the service's first span, from arrival to the response's end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.contracts.tracing import SpanContext
from outrider.tracing.spans import Span, SpanEvent, SpanKind, Value

_MOST_EVENTS = 128


@dataclass(slots=True, eq=False)
class RequestTrace:
    """Trace of a sampled request, filled while it runs. Times are seconds since 1970."""

    context: SpanContext  # of its span
    parent_id: str | None  # the caller's span, if it sent one
    began_at_s: float  # time of arrival
    facts: dict[str, Value] = field(default_factory=dict)  # attributes of the span
    events: list[SpanEvent] = field(default_factory=list)  # in order of time

    def happened(self, name: str, at_s: float, attributes: Mapping[str, Value]) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(SpanEvent(name, at_s, attributes))

    def span(self, name: str, ended_at_s: float, error: str | None) -> Span:
        return Span(
            name,
            self.context,
            self.parent_id,
            self.began_at_s,
            ended_at_s,
            kind=SpanKind.SERVER,
            remote=self.parent_id is not None,
            attributes=self.facts,
            events=tuple(self.events),
            error=error,
        )
