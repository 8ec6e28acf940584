"""What may be shown of the tokens a round has committed, and who proposed each piece. Pure."""

from dataclasses import dataclass

from outrider.contracts.committed import Committed
from outrider.contracts.requests import FinishReason, TextSpan, TokenOrigin
from outrider.text.stops import IncrementalText


@dataclass(frozen=True, slots=True)
class Shown:
    """Text of one round's tokens."""

    spans: tuple[TextSpan, ...]
    consumed: int  # tokens that count; a stop string swallows those behind it
    finish: FinishReason | None


def shown(text: IncrementalText, committed: Committed) -> Shown:
    """Push a round's tokens into a response's text, up to a stop string; the last round's also what was held back."""
    spans, consumed, stopped = list[TextSpan](), 0, False
    for token_id, origin in zip(committed.token_ids, committed.origins, strict=True):
        piece = text.push((token_id,))
        consumed += 1
        stopped = piece.stopped
        _add_span(spans, piece.text, origin)
        if stopped:
            break
    if committed.finish is not None and not stopped:
        _add_span(spans, text.finish(), committed.origins[-1])
    return Shown(tuple(spans), consumed, FinishReason.STOP if stopped else committed.finish)


def _add_span(spans: list[TextSpan], text: str, origin: TokenOrigin) -> None:
    """Lengthen the last span, or begin another."""
    if spans and spans[-1].origin is origin:
        spans[-1] = TextSpan(spans[-1].text + text, origin)
    elif text:
        spans.append(TextSpan(text, origin))
