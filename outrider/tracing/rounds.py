"""Spans of a committed round, laid out from its record: durations of phases, and the time of its commit.

A record says how long each phase took, not when it began. The exchange with the device is placed at the round's
beginning, queueing and verification at its end; the time between is orchestration. Of the exchange the total and the
device's own work are known, without the device's clock: the work is placed in the middle, so that downlink and uplink
are equally long.
"""

from collections.abc import Sequence

from outrider.contracts.tracing import SpanContext
from outrider.rounds.timing import RoundTiming
from outrider.tracing.spans import Ids, Span, SpanLink, Value


def round_spans(
    timing: RoundTiming, parent: SpanContext, committed_at_s: float, passes: Sequence[SpanContext], ids: Ids
) -> list[Span]:
    """Return the spans of a round and of its phases, which are its children; the round is the first.

    ``committed_at_s`` is in seconds since 1970; ``passes`` are the verifier's that it was part of. A round ordered
    while others were made begins with its order.
    """
    context = ids.child(parent)
    # The part beside other rounds came before the time that is counted as the round's own.
    began_at_s = committed_at_s - timing.total_s - timing.beside_s
    whole = Span("round", context, parent.span_id, began_at_s, committed_at_s, attributes=round_attributes(timing))
    spans = [whole]

    def phase(name: str, from_s: float, until_s: float, links: tuple[SpanLink, ...] = ()) -> None:
        from_s, until_s = (max(began_at_s, min(at_s, committed_at_s)) for at_s in (from_s, until_s))
        spans.append(Span(name, ids.child(context), context.span_id, from_s, until_s, links=links))

    verified_from_s = committed_at_s - timing.verify_s
    queued_from_s = verified_from_s - timing.queue_s
    if exchange_s := timing.draft_s + timing.link_s:
        end_s = min(began_at_s + exchange_s, max(began_at_s, queued_from_s))
        way_s = timing.link_s * (end_s - began_at_s) / exchange_s / 2
        phase("downlink", began_at_s, began_at_s + way_s)
        phase("draft", began_at_s + way_s, end_s - way_s)
        phase("uplink", end_s - way_s, end_s)
    phase("queue", queued_from_s, verified_from_s)
    phase("verify", verified_from_s, committed_at_s, tuple(map(SpanLink, passes)))
    return spans


def round_attributes(timing: RoundTiming) -> dict[str, Value]:
    said: dict[str, Value] = {
        "outrider.round": timing.number,
        "outrider.protocol": timing.protocol or "none",
        "outrider.arm": timing.mode.name,
        "outrider.tokens.ordered": timing.ordered_tokens,
        "outrider.tokens.drafted": timing.drafted_tokens,
        "outrider.tokens.accepted": timing.accepted_tokens,
        "outrider.tokens.committed": timing.committed_tokens,
        "outrider.orchestration_s": max(0.0, timing.orchestration_s),
    }
    if timing.up_bits or timing.down_bits:
        said |= {"outrider.payload.up_bits": timing.up_bits, "outrider.payload.down_bits": timing.down_bits}
    if timing.beside_s:
        said["outrider.beside_s"] = timing.beside_s
    if timing.late is not None:
        said["outrider.late"] = str(timing.late)
    if timing.behind:
        said["outrider.behind"] = True
    return said
