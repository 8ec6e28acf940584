"""The trace of one response at its coordinator: waiting for admission, its rounds, what went wrong on the way.

Rounds that the verifier makes by itself are one token each: some are told of together, as an *autonomous run*.
"""

from dataclasses import dataclass, field, replace

from outrider.contracts.requests import GenerationRequest
from outrider.contracts.tracing import SpanContext
from outrider.rounds.timing import RoundTiming
from outrider.tracing.rounds import round_spans
from outrider.tracing.spans import Emit, Ids, Span, SpanEvent, SpanKind, SpanLink, Value

MOST_TOGETHER = (
    128  # rounds in the span of an autonomous run: so long it stays readable, and as many links OpenTelemetry allows
)
_MOST_EVENTS = 128
_MOST_PASSES = 1024  # of rounds that were not committed yet, or never will be


@dataclass(slots=True)
class _AutonomousRounds:
    """Rounds that followed by themselves, one behind the other."""

    began_at_s: float
    ended_at_s: float = 0.0
    rounds: int = 0
    tokens: int = 0
    queue_s: float = 0.0
    verify_s: float = 0.0
    passes: list[SpanContext] = field(default_factory=list)


class ResponseTrace:
    """Of a sampled response. Its spans are told as soon as they are over, its own last.

    Moments are told on the caller's clock.
    """

    def __init__(
        self, request: GenerationRequest, parent: SpanContext, began_at_s: float, epoch_s: float, ids: Ids, emit: Emit
    ) -> None:
        """It is asked for now.

        Args:
            request: the response.
            parent: of whoever asks, in another process.
            began_at_s: on the caller's clock, which shows 0 at ``epoch_s``, in seconds since 1970.
            epoch_s: that.
            ids: for its spans.
            emit: takes them.
        """
        self._request, self._parent = request, parent
        self._began_at_s, self._epoch_s = epoch_s + began_at_s, epoch_s
        self._ids, self._export = ids, emit
        self._events: list[SpanEvent] = []
        self._passes: dict[int, list[SpanContext]] = {}  # by round, of rounds that are not committed
        self._autonomous_run: _AutonomousRounds | None = None
        self._rounds = self._drafted = self._accepted = self._committed = 0
        self.context = ids.child(parent)

    def admitted(self, now_s: float) -> None:
        """It has waited for a place until now."""
        at_s = self._epoch_s + now_s
        self._emit(Span("admission", self._ids.child(self.context), self.context.span_id, self._began_at_s, at_s))

    def passed(self, number: int, by: SpanContext) -> SpanLink:
        """A round of it was part of a pass of the verifier, which links to it by what this returns."""
        while len(self._passes) >= _MOST_PASSES and number not in self._passes:
            del self._passes[next(iter(self._passes))]
        self._passes.setdefault(number, []).append(by)
        return SpanLink(self.context, {"outrider.round": number})

    def round(self, timing: RoundTiming, now_s: float) -> None:
        """A round is committed now."""
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
        """Something that is worth a line of the log."""
        if len(self._events) < _MOST_EVENTS:
            self._events.append(SpanEvent(name, self._epoch_s + now_s, attributes))

    def ended(self, now_s: float, end: str, error: str | None = None) -> None:
        """It is over; ``end``: finished, cancelled or failed, which is an ``error``."""
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
        autonomous_run = self._autonomous_run or _AutonomousRounds(at_s - timing.total_s)
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
        """No child begins before its parent: of what is laid out by durations, that is the first round's to see to."""
        began_at_s = max(span.began_at_s, self._began_at_s)
        if began_at_s != span.began_at_s:
            span = replace(span, began_at_s=began_at_s, ended_at_s=max(began_at_s, span.ended_at_s))
        self._export(span)
