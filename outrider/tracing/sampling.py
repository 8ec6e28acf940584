"""Which requests are traced. Decided once, where they arrive: what is not sampled carries nothing from there on."""

from dataclasses import dataclass

from outrider.contracts.tracing import SpanContext, read_traceparent

_BITS = 56  # W3C Trace Context, level 2: of a trace id's end, that are random


@dataclass(frozen=True, slots=True)
class SamplingDecision:
    """What becomes of a request.

    Attributes:
        trace_id: the caller's, or the one drawn for it.
        parent_id: the caller's span; None: it named none.
    """

    trace_id: str
    parent_id: str | None
    sampled: bool


def decide(header: str, ratio: float, drawn: SpanContext) -> SamplingDecision:
    """Whether a request is sampled: as its caller says, if that says anything.

    Args:
        header: ``traceparent``, or "".
        ratio: of requests whose callers say nothing, so many are sampled, 0 to 1.
        drawn: of a trace of its own, for these: chance lies in its id, for all who sample it.
    """
    caller = read_traceparent(header) if header else None
    if caller is not None:
        return SamplingDecision(caller.context.trace_id, caller.context.span_id, caller.sampled)
    chance = int(drawn.trace_id, 16) & (2**_BITS - 1)
    return SamplingDecision(drawn.trace_id, None, chance < round(ratio * 2**_BITS))
