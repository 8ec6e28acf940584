"""From committed tokens to text that may be shown: incremental detokenising and stop strings.

What is shown is never taken back. So the bytes of a character split over tokens are held until it is complete, and a
tail that may be the beginning of a stop string until it is known not to be one. Neither depends on how tokens fall
into blocks: text is made token by token, and a stop string ends a response at the first character that completes it.

Special tokens have no text (as in OpenAI's API), so no stop string can match one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from outrider.errors import ModelUnavailableError, ParameterError


@dataclass(frozen=True, slots=True)
class Piece:
    """What some pushed tokens have come to.

    Attributes:
        text: may be shown now; empty if all is held back.
        consumed_tokens: how many of the pushed tokens belong to the response. All, unless a stop string was completed:
            then those up to the one that completed it.
        stopped: whether a stop string has been completed. Its text is not shown.
    """

    text: str
    consumed_tokens: int
    stopped: bool


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

    Raises:
        ParameterError: a stop string is empty.
        ModelUnavailableError: the tokenizer has no ``tokenizers`` backend.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = (), sent_ids: Sequence[int] = ()
    ) -> None:
        self._backend = backend_of(tokenizer)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._decoded: list[int] = []  # the tokens whose text came out last: the context of the next
        self._undecoded: list[int] = []  # since then; their last character is incomplete
        self._matcher = StopMatcher(stop)
        self.push(sent_ids)

    def push(self, token_ids: Sequence[int]) -> Piece:
        """Take tokens in their order. After a stop string they are not consumed."""
        shown: list[str] = []
        consumed = 0
        for token_id in token_ids:
            if self._matcher.stopped:
                break
            consumed += 1
            self._undecoded.append(token_id)
            text = self._stream.step(self._backend, token_id)
            if text is not None:
                self._decoded, self._undecoded = self._undecoded, []
                shown.append(self._matcher.push(text))
        return Piece("".join(shown), consumed, self._matcher.stopped)

    def finish(self) -> str:
        """What was held back, now that no token follows; an incomplete character becomes U+FFFD.

        All text together is then ``decode(token_ids, skip_special_tokens=True)``, cut at the first stop string.
        """
        known = len(self._backend.decode(self._decoded, skip_special_tokens=True))
        tail = self._backend.decode(self._decoded + self._undecoded, skip_special_tokens=True)[known:]
        self._decoded, self._undecoded = [], []
        return self._matcher.push(tail) + self._matcher.finish()


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
