"""Spans of a committed round, laid out by what was recorded of it: durations, and when it was committed.

A record says how long each phase took, not when it was. So a round's exchange with its device is placed at its
beginning, its wait for the verifier and the verifier's work at its end, and what lies between is orchestration. Of an
exchange it is known how long the device worked and how long the whole took, without the device's clock: its work is
placed in the middle, the way down and the way up as long as each other.
"""

from collections.abc import Sequence

from outrider.contracts.tracing import SpanContext
from outrider.rounds.timing import RoundTiming
from outrider.tracing.spans import Ids, Span, SpanLink, Value


def round_spans(
    timing: RoundTiming, parent: SpanContext, committed_at_s: float, passes: Sequence[SpanContext], ids: Ids
) -> list[Span]:
    """A round, and its phases as its children.

    Args:
        timing: of the round.
        parent: of its response.
        committed_at_s: seconds since 1970.
        passes: of the verifier, that it was part of.
        ids: for the spans.

    Returns:
        The round first. A round that was ordered while others were made begins with its order.
    """
    context = ids.child(parent)
    # What went on beside other rounds came before the time that is counted as its own.
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
    """What a round's span says of it."""
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
