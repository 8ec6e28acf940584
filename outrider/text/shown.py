"""Text of committed tokens that may be shown: complete characters, up to the first stop string. Pure.

Shown text is never withdrawn. So bytes of an incomplete character are held back until it is complete, and a suffix that
may begin a stop string until it is known not to. Neither depends on how tokens are divided into blocks: text is decoded
token by token, and a stop string ends a response at the first character that completes it.

Special tokens have no text (as in OpenAI's API), so no stop string can match one, unless a request wants their text.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from outrider.contracts.committed import CommittedRound
from outrider.contracts.requests import FinishReason, GenerationRequest, TagPlace, TextSpan
from outrider.text.decoding import text_decoder
from outrider.text.stops import StopMatcher
from outrider.text.tokens import backend_of


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """Which tokens have a text."""

    silent_ids: Collection[int] = ()  # those that end the response have none
    special: bool = False  # whether special tokens have one


_USUAL = TokenTexts()


class IncrementalText:
    """Text of one response.

    Args:
        tokenizer: of the target; needs a ``tokenizers`` backend.
        stop: stop strings, none empty.
        sent_ids: tokens of a resumed response that were pushed elsewhere; their shown text is not shown again, text
            that was held back still is.
        min_tokens: the text of this many tokens, ``sent_ids`` included, is no part of any stop string.
        texts: which tokens have a text.
        keeps_stop: whether the stop string that ends the response is shown.

    Attributes:
        tag_ids: tokens whose places in the text ``take_tags`` returns; set before any is pushed.
        shown_tokens: number of the response's leading tokens (``sent_ids`` included) whose text is all shown. A token
            without text counts once all before it do; a token that a stop string removed, even in part, never does.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stop: Sequence[str] = (),
        sent_ids: Sequence[int] = (),
        min_tokens: int = 0,
        texts: TokenTexts = _USUAL,
        *,
        keeps_stop: bool = False,
    ) -> None:
        self.tag_ids: Collection[int] = ()
        self._coming = deque[tuple[int, int]]()  # ids and indices of tags
        self._tags, self._end = list[TagPlace](), 0  # end: of the last shown token
        self._decoder = text_decoder(backend_of(tokenizer), special=texts.special)
        self._matcher = StopMatcher(stop, keeps=keeps_stop)
        self._silent_ids = texts.silent_ids
        self._min_tokens = min_tokens
        self._pushed_tokens = 0
        self._shown_characters = 0
        self.shown_tokens = 0
        self.resume(sent_ids)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; nothing after it is shown, and itself only where it is kept."""
        return self._matcher.stopped

    def resume(self, sent_ids: Sequence[int]) -> None:
        """Take tokens whose shown text and tags are known elsewhere."""
        for token_id in sent_ids:
            self.push(token_id)
        self._tags.clear()

    def push(self, token_id: int) -> str:
        """Take the next token; return the text that may be shown now."""
        if self.stopped:
            return ""
        if token_id in self.tag_ids:
            self._coming.append((token_id, self._pushed_tokens))
        self._pushed_tokens += 1
        decoder = self._decoder
        return self._show(self._match(decoder.skip() if token_id in self._silent_ids else decoder.push(token_id)))

    def finish(self) -> str:
        """Return the text held back, now that no token follows; an incomplete character becomes U+FFFD.

        All texts together are then ``decode(token_ids, skip_special_tokens=True)``, cut at the first stop string; all
        tokens are shown but those it removed.
        """
        return self._show(self._match(self._decoder.finish()) + self._matcher.finish())

    def _match(self, text: str) -> str:
        return text if self._pushed_tokens <= self._min_tokens else self._matcher.push(text)

    def _show(self, text: str) -> str:
        self._shown_characters += len(text)
        ends = self._decoder.ends
        while ends and ends[0] <= self._shown_characters:
            end = ends.popleft()
            if self._coming and self._coming[0][1] == self.shown_tokens:
                self._tags.append(TagPlace(*self._coming.popleft(), self._end, end))
            self._end = end
            self.shown_tokens += 1
        return text

    def take_tags(self) -> tuple[TagPlace, ...]:
        """Return the tags that became visible since the last call."""
        if not self._tags:
            return ()
        tags, self._tags = tuple(self._tags), []
        return tags


def text_of(
    request: GenerationRequest, tokenizer: PreTrainedTokenizerBase, end_ids: Collection[int]
) -> IncrementalText:
    """Return the text of a request's response, which any of ``end_ids`` ends.

    As in vLLM the token that ends it has a text only where the stop string would be kept. Of the model's own end
    tokens this decides only where special tokens have a text.
    """
    silent = end_ids if request.special_text else request.stop_ids
    text = IncrementalText(
        tokenizer,
        request.stop,
        (),
        request.min_tokens,
        TokenTexts(() if request.keeps_stop else frozenset(silent), request.special_text),
        keeps_stop=request.keeps_stop,
    )
    text.tag_ids = frozenset(request.tag_ids)
    text.resume(request.output_ids)
    return text


@dataclass(frozen=True, slots=True)
class Shown:
    """Text of one round's tokens, by their origin."""

    spans: tuple[TextSpan, ...]
    consumed: int  # number of tokens up to the end of a stop string, or all
    finish: FinishReason | None
    unjoined: Sequence[TextSpan] = field(default=(), compare=False)
    """One for each of these tokens, and one of what was held back, if it comes now."""

    def pieces(self) -> tuple[TextSpan, ...]:
        """Return the text each consumed token makes visible, possibly ""; the last one's includes text held back."""
        own, held = self.unjoined[: self.consumed], self.unjoined[self.consumed :]
        if not held:
            return tuple(own)
        text = own[-1].text + "".join(span.text for span in held)
        return (*own[:-1], TextSpan(text, own[-1].origin))


def shown(text: IncrementalText, committed: CommittedRound) -> Shown:
    """Push a round's tokens into a response's text, up to a stop string; a last round also shows text held back."""
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
    """Merge adjacent spans of one origin; drop empty ones."""
    spans = [span for span in spans if span.text]
    if len(spans) < 2:
        return tuple(spans)
    by_origin = groupby(spans, lambda span: span.origin)
    return tuple(TextSpan("".join(span.text for span in run), origin) for origin, run in by_origin)
