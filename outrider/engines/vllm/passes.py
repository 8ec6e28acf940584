"""Split a pass into parts that fit vLLM's buffers. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from outrider.engines.segments import Segment


def split(segments: Sequence[Segment], max_tokens: int, max_segments: int) -> list[list[Segment]]:
    """Return parts of at most ``max_tokens`` tokens and ``max_segments`` segments, to be run in this order.

    The rows of the parts, one after another, are the rows of the whole. A segment is cut where a part is full.
    """
    parts: list[list[Segment]] = []
    room = 0
    for segment in segments:
        rest: Segment | None = segment
        while rest is not None:
            if room == 0 or len(parts[-1]) == max_segments:
                parts.append([])
                room = max_tokens
            head, rest = _cut(rest, room)
            parts[-1].append(head)
            room -= len(head.token_ids)
    return parts


def _cut(segment: Segment, tokens: int) -> tuple[Segment, Segment | None]:
    """Return the first ``tokens`` tokens of a segment, and the rest, if any."""
    behind = len(segment.token_ids) - tokens
    if behind <= 0:
        return segment, None
    head = replace(segment, token_ids=segment.token_ids[:tokens], logit_rows=max(0, segment.logit_rows - behind))
    rest = replace(
        segment,
        token_ids=segment.token_ids[tokens:],
        start=segment.start + tokens,
        logit_rows=min(segment.logit_rows, behind),
    )
    return head, rest
