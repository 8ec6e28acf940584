"""Trace of one response at its coordinator: waiting for admission, its rounds, and events.

Rounds of an autonomous run have one token each, so up to 128 of them share a span.
"""

from dataclasses import dataclass, field, replace

from outrider.contracts.requests import GenerationRequest
from outrider.contracts.tracing import SpanContext
from outrider.rounds.timing import RoundTiming
from outrider.tracing.rounds import round_spans
from outrider.tracing.spans import Emit, Ids, Span, SpanEvent, SpanKind, SpanLink, Value

MOST_TOGETHER = 128  # rounds in the span of an autonomous run: OpenTelemetry allows as many links
_MOST_EVENTS = 128
_MOST_PASSES = 1024  # of rounds that are not committed yet, or never will be


@dataclass(slots=True)
class _TracedRun:
    """Consecutive rounds of an autonomous run, without drafts."""

    began_at_s: float
    ended_at_s: float = 0.0
    rounds: int = 0
    tokens: int = 0
    queue_s: float = 0.0
    verify_s: float = 0.0
    passes: list[SpanContext] = field(default_factory=list)


class ResponseTrace:
    """Trace of a sampled response. Spans are emitted when they end, its own last.

    Times are on the caller's clock.
    """

    def __init__(
        self, request: GenerationRequest, parent: SpanContext, began_at_s: float, epoch_s: float, ids: Ids, emit: Emit
    ) -> None:
        """Start the trace when the response is requested, by a span (``parent``) in another process.

        ``began_at_s`` is on the caller's clock, which shows 0 at ``epoch_s``, seconds since 1970; ``emit`` gets spans.
        """
        self._request, self._parent = request, parent
        self._began_at_s, self._epoch_s = epoch_s + began_at_s, epoch_s
        self._ids, self._export = ids, emit
        self._events: list[SpanEvent] = []
        self._passes: dict[int, list[SpanContext]] = {}  # spans of passes, by rounds that are not committed
        self._autonomous_run: _TracedRun | None = None
        self._rounds = self._drafted = self._accepted = self._committed = 0
        self.context = ids.child(parent)

    def admitted(self, now_s: float) -> None:
        at_s = self._epoch_s + now_s
        self._emit(Span("admission", self._ids.child(self.context), self.context.span_id, self._began_at_s, at_s))

    def passed(self, number: int, by: SpanContext) -> SpanLink:
        """Record that a round was part of a verifier's pass; return the link for the pass's span."""
        while len(self._passes) >= _MOST_PASSES and number not in self._passes:
            del self._passes[next(iter(self._passes))]
        self._passes.setdefault(number, []).append(by)
        return SpanLink(self.context, {"outrider.round": number})

    def round(self, timing: RoundTiming, now_s: float) -> None:
        at_s, passes = self._epoch_s + now_s, self._passes.pop(timing.number, [])
        if not self._rounds:
            self._events.append(SpanEvent("first_token", at_s))
        self._rounds += 1
        self._drafted += timing.drafted_tokens - timing.trimmed_tokens
        self._accepted += timing.accepted_tokens
        self._committed += timing.committed_tokens
        if timing.follows and not timing.drafted_tokens:
            self._followed(timing, at_s, passes)
            return
        self._run_over()
        for span in round_spans(timing, self.context, at_s, passes, self._ids):
            self._emit(span)

    def happened(self, name: str, now_s: float, **attributes: Value) -> None:
        if len(self._events) < _MOST_EVENTS:
            self._events.append(SpanEvent(name, self._epoch_s + now_s, attributes))

    def ended(self, now_s: float, end: str, error: str | None = None) -> None:
        """End the trace; ``end``: finished, cancelled, or failed with an ``error``."""
        self._run_over()
        request = self._request
        said: dict[str, Value] = {
            "outrider.generation": request.generation,
            "outrider.request_id": request.request_id,
            "outrider.slo_class": request.slo.name,
            "outrider.end": end,
            "outrider.rounds": self._rounds,
            "outrider.tokens.prompt": len(request.prompt_ids),
            "outrider.tokens.resumed": len(request.output_ids),
            "outrider.tokens.drafted": self._drafted,
            "outrider.tokens.accepted": self._accepted,
            "outrider.tokens.committed": self._committed,
        }
        span = Span(
            "generate",
            self.context,
            self._parent.span_id,
            self._began_at_s,
            self._epoch_s + now_s,
            kind=SpanKind.SERVER,
            remote=True,
            attributes=said,
            events=tuple(self._events),
            error=error,
        )
        self._emit(span)

    def _followed(self, timing: RoundTiming, at_s: float, passes: list[SpanContext]) -> None:
        autonomous_run = self._autonomous_run or _TracedRun(at_s - timing.total_s)
        autonomous_run.ended_at_s = at_s
        autonomous_run.rounds += 1
        autonomous_run.tokens += timing.committed_tokens
        autonomous_run.queue_s += timing.queue_s
        autonomous_run.verify_s += timing.verify_s
        autonomous_run.passes += passes
        self._autonomous_run = autonomous_run
        if autonomous_run.rounds >= MOST_TOGETHER:
            self._run_over()

    def _run_over(self) -> None:
        if (autonomous_run := self._autonomous_run) is None:
            return
        self._autonomous_run = None
        self._emit(
            Span(
                "stretch",
                self._ids.child(self.context),
                self.context.span_id,
                autonomous_run.began_at_s,
                autonomous_run.ended_at_s,
                attributes={
                    "outrider.rounds": autonomous_run.rounds,
                    "outrider.tokens.committed": autonomous_run.tokens,
                    "outrider.queue_s": autonomous_run.queue_s,
                    "outrider.verify_s": autonomous_run.verify_s,
                },
                links=tuple(map(SpanLink, autonomous_run.passes[:MOST_TOGETHER])),
            )
        )

    def _emit(self, span: Span) -> None:
        """Emit a span, clipped to the response's: durations of its first round may reach back before it."""
        began_at_s = max(span.began_at_s, self._began_at_s)
        if began_at_s != span.began_at_s:
            span = replace(span, began_at_s=began_at_s, ended_at_s=max(began_at_s, span.ended_at_s))
        self._export(span)
