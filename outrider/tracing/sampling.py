"""Sampling of traces, decided once where a request arrives: unsampled requests carry no trace from there on."""

from dataclasses import dataclass

from outrider.contracts.tracing import SpanContext, read_traceparent

_BITS = 56  # trailing bits of a trace id that are random (W3C Trace Context, level 2)


@dataclass(frozen=True, slots=True)
class SamplingDecision:
    trace_id: str  # the caller's, or a new one
    parent_id: str | None  # the caller's span; None: the caller sent none
    sampled: bool


def decide(header: str, ratio: float, drawn: SpanContext) -> SamplingDecision:
    """Decide whether a request is sampled: as its caller's ``traceparent`` says, else a share ``ratio`` at random.

    ``drawn`` is a new trace for these. Its id is the random number, so that all who sample it decide alike.
    """
    caller = read_traceparent(header) if header else None
    if caller is not None:
        return SamplingDecision(caller.context.trace_id, caller.context.span_id, caller.sampled)
    chance = int(drawn.trace_id, 16) & (2**_BITS - 1)
    return SamplingDecision(drawn.trace_id, None, chance < round(ratio * 2**_BITS))
