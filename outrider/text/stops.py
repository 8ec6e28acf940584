"""From committed tokens to text that may be shown: complete characters, up to the first stop string.

What is shown is never taken back. So the bytes of a character split over tokens are held until it is complete, and a
tail that may be the beginning of a stop string until it is known not to be one. Neither depends on how tokens fall
into blocks: text is made token by token, and a stop string ends a response at the first character that completes it.

Special tokens have no text (as in OpenAI's API), so no stop string can match one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ModelUnavailableError, ParameterError
from outrider.text.decoding import text_decoder


@dataclass(frozen=True, slots=True)
class Piece:
    """What some pushed tokens have come to.

    Attributes:
        text: may be shown now; empty if all is held back.
        consumed_tokens: how many of the pushed tokens belong to the response. All, unless a stop string was completed:
            then those up to the one that completed it.
        stopped: whether a stop string has been completed. Its text is not shown.
        shown_tokens: how many of the response's tokens, from its first, have all their text shown. A token without
            text counts once all before it do; one that a stop string swallowed, wholly or partly, never does.
    """

    text: str
    consumed_tokens: int
    stopped: bool
    shown_tokens: int


def tokens_that_stop(token_texts: Sequence[str], stop: Sequence[str]) -> tuple[int, ...]:
    """Tokens whose own text has a stop string in it: whatever comes before, they end a response.

    Args:
        token_texts: text of every token of the vocabulary, by id.
        stop: stop strings.
    """
    if not stop:
        return ()
    return tuple(i for i, text in enumerate(token_texts) if any(string in text for string in stop))


class StopMatcher:
    """Cuts text at the first stop string, whichever way the text is split.

    The match that ends first wins; of those that end together, the longest.

    Raises:
        ParameterError: a stop string is empty.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if not all(stop):
            raise ParameterError("stop", "non-empty strings", list(stop))
        self._stop = tuple(stop)
        self._held = ""  # the longest suffix so far that a stop string may begin with
        self.stopped = False

    def push(self, text: str) -> str:
        """Take the next text, return what may be shown; nothing more once ``stopped``."""
        if self.stopped:
            return ""
        text = self._held + text
        matches = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if matches:
            self.stopped, self._held = True, ""
            return text[: min(matches)[1]]
        shown = len(text) - max((_begun(stop, text) for stop in self._stop), default=0)
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """The text still held: no more follows, so it is no stop string."""
        held, self._held = self._held, ""
        return held


class IncrementalText:
    """The text of one response.

    Args:
        tokenizer: of the target; needs a ``tokenizers`` backend.
        stop: stop strings, none empty.
        sent_ids: tokens of a resumed response that were pushed elsewhere; what was shown of them is not shown again,
            what was held back still is.
        min_tokens: the text of this many tokens, ``sent_ids`` included, is no part of any stop string.

    Raises:
        ParameterError: a stop string is empty.
        ModelUnavailableError: the tokenizer has no ``tokenizers`` backend.
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
        self._shown_tokens = 0
        self.push(sent_ids)

    @property
    def shown_tokens(self) -> int:
        """How many of the response's tokens have all their text shown, ``sent_ids`` included; see ``Piece``."""
        return self._shown_tokens

    def push(self, token_ids: Sequence[int]) -> Piece:
        """Take tokens in their order. After a stop string they are not consumed."""
        shown: list[str] = []
        consumed = 0
        for token_id in token_ids:
            if self._matcher.stopped:
                break
            consumed += 1
            self._pushed_tokens += 1
            shown.append(self._show(self._match(self._decoder.push(token_id))))
        return Piece("".join(shown), consumed, self._matcher.stopped, self._shown_tokens)

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
            self._shown_tokens += 1
        return text


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The Rust tokenizer inside: safe to share between threads, unlike what wraps it.

    Raises:
        ModelUnavailableError: it has none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelUnavailableError(
            f"needs a tokenizer with a tokenizers backend, found {type(tokenizer).__name__}; "
            "add a tokenizer.json to the model's folder"
        )
    return backend


def _begun(stop: str, text: str) -> int:
    """Length of the longest proper prefix of ``stop`` that ``text`` ends with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
