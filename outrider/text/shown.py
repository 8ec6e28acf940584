"""From committed tokens to text that may be shown: complete characters, up to the first stop string. Pure.

What is shown is never taken back. So the bytes of a character split over tokens are held until it is complete, and a
tail that may be the beginning of a stop string until it is known not to be one. Neither depends on how tokens fall
into blocks: text is made token by token, and a stop string ends a response at the first character that completes it.

Special tokens have no text (as in OpenAI's API), so no stop string can match one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from outrider.contracts.committed import CommittedRound
from outrider.contracts.requests import FinishReason, TextSpan
from outrider.text.decoding import text_decoder
from outrider.text.stops import StopMatcher
from outrider.text.tokens import backend_of


class IncrementalText:
    """The text of one response.

    Args:
        tokenizer: of the target; needs a ``tokenizers`` backend.
        stop: stop strings, none empty.
        sent_ids: tokens of a resumed response that were pushed elsewhere; what was shown of them is not shown again,
            what was held back still is.
        min_tokens: the text of this many tokens, ``sent_ids`` included, is no part of any stop string.

    Attributes:
        shown_tokens: how many of the response's tokens, from its first (``sent_ids`` included), have all their text
            shown. A token without text counts once all before it do; one that a stop string swallowed, wholly or
            partly, never does.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stop: Sequence[str] = (),
        sent_ids: Sequence[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self._decoder = text_decoder(backend_of(tokenizer))
        self._matcher = StopMatcher(stop)
        self._min_tokens = min_tokens
        self._pushed_tokens = 0
        self._shown_characters = 0
        self.shown_tokens = 0
        for token_id in sent_ids:
            self.push(token_id)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has been completed; it is not shown, nor is anything behind it."""
        return self._matcher.stopped

    def push(self, token_id: int) -> str:
        """Take the next token, return what may be shown now."""
        if self.stopped:
            return ""
        self._pushed_tokens += 1
        return self._show(self._match(self._decoder.push(token_id)))

    def finish(self) -> str:
        """What was held back, now that no token follows; an incomplete character becomes U+FFFD.

        All text together is then ``decode(token_ids, skip_special_tokens=True)``, cut at the first stop string; all
        tokens are shown but those it swallowed.
        """
        return self._show(self._match(self._decoder.finish()) + self._matcher.finish())

    def _match(self, text: str) -> str:
        return text if self._pushed_tokens <= self._min_tokens else self._matcher.push(text)

    def _show(self, text: str) -> str:
        """Count what is shown."""
        self._shown_characters += len(text)
        ends = self._decoder.ends
        while ends and ends[0] <= self._shown_characters:
            ends.popleft()
            self.shown_tokens += 1
        return text


@dataclass(frozen=True, slots=True)
class Shown:
    """Text of one round's tokens, by who proposed each piece."""

    spans: tuple[TextSpan, ...]
    consumed: int  # tokens that count; a stop string swallows those behind it
    finish: FinishReason | None
    unjoined: Sequence[TextSpan] = field(default=(), compare=False)
    """One for each of these tokens, and one of what was held back, if it comes now."""

    def pieces(self) -> tuple[TextSpan, ...]:
        """What each token that counts makes visible, be it nothing; the last one also what was held back."""
        own, held = self.unjoined[: self.consumed], self.unjoined[self.consumed :]
        if not held:
            return tuple(own)
        text = own[-1].text + "".join(span.text for span in held)
        return (*own[:-1], TextSpan(text, own[-1].origin))


def shown(text: IncrementalText, committed: CommittedRound) -> Shown:
    """Push a round's tokens into a response's text, up to a stop string; the last round's also what was held back."""
    spans = list[TextSpan]()
    for token_id, origin in zip(committed.token_ids, committed.origins, strict=True):
        spans.append(TextSpan(text.push(token_id), origin))
        if text.stopped:
            break
    consumed = len(spans)
    if committed.finish is not None and not text.stopped:
        spans.append(TextSpan(text.finish(), committed.origins[-1]))
    finish = FinishReason.STOP if text.stopped else committed.finish
    return Shown(joined(spans), consumed, finish, spans)


def joined(spans: Iterable[TextSpan]) -> tuple[TextSpan, ...]:
    """The same text in as few spans as can be, none empty: neighbours of one origin become one."""
    spans = [span for span in spans if span.text]
    if len(spans) < 2:
        return tuple(spans)
    by_origin = groupby(spans, lambda span: span.origin)
    return tuple(TextSpan("".join(span.text for span in run), origin) for origin, run in by_origin)
