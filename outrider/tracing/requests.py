"""The trace of one HTTP request at its ingress: our first span, from its arrival to its response's end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.contracts.tracing import SpanContext
from outrider.tracing.spans import Span, SpanEvent, SpanKind, Value

_MOST_EVENTS = 128


@dataclass(slots=True, eq=False)
class RequestTrace:
    """Of a sampled request; filled as it goes on. Moments are seconds since 1970.

    Attributes:
        context: of its span.
        parent_id: the caller's, if it named one.
        began_at_s: when it arrived.
        facts: what is known of it.
        events: what happened, oldest first.
    """

    context: SpanContext
    parent_id: str | None
    began_at_s: float
    facts: dict[str, Value] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)

    def happened(self, name: str, at_s: float, attributes: Mapping[str, Value]) -> None:
        """Something that is worth a line of the log."""
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
