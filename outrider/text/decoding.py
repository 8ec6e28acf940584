"""Text from tokens, one at a time, each character once it is complete.

A byte-level vocabulary (GPT-2's kind: most current models) is read as bytes, which costs the same for every token and
tells where in the text each token ends. Any other is asked to decode the last tokens again and again, which needs no
knowledge of how it works; its cost grows only while a character stays incomplete, for so many tokens at most.
"""

from codecs import getincrementaldecoder
from collections import deque
from functools import lru_cache
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

from outrider.text.tokens import TokenTable

REPLACEMENT = "\ufffd"  # stands for bytes that are no character
_KEPT_TABLES = 4
_MOST_WAITING = 64  # tokens without a whole character; one has four bytes at most


class TextDecoder(Protocol):
    """The text of one response. All of it together is the backend's ``decode`` of the tokens, special ones skipped."""

    ends: deque[int]
    """For each token, in order: characters up to its last one; as soon as that is known. The reader takes them away."""

    def push(self, token_id: int) -> str:
        """Take a token, return the characters it completes."""
        ...

    def finish(self) -> str:
        """The rest: bytes that wait for others become U+FFFD."""
        ...


def text_decoder(backend: Tokenizer) -> TextDecoder:
    """The decoder for a tokenizer."""
    table = _table(backend)
    return ByteLevelDecoder(table) if isinstance(backend.decoder, ByteLevel) else AnyDecoder(backend, table)


@lru_cache(_KEPT_TABLES)
def _table(backend: Tokenizer) -> TokenTable:
    """One for all responses: reading a vocabulary's special tokens takes longer than a token."""
    return TokenTable(backend)


class ByteLevelDecoder:
    """For vocabularies whose tokens are bytes, written as one printable character each."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._utf8 = getincrementaldecoder("utf-8")("replace")
        self._characters = 0
        self._whole = True  # no byte is held
        self.ends: deque[int] = deque()

    def push(self, token_id: int) -> str:
        """The characters that the token's bytes complete."""
        data = self._table.data(token_id) or b""
        if self._whole and data.isascii():  # most tokens
            self._characters += len(data)
            self.ends.append(self._characters)
            return data.decode("ascii")
        text = self._utf8.decode(data)
        self._characters += len(text)
        held = self._utf8.getstate()[0]  # comes out as this many characters, whatever follows
        self._whole = not held
        self.ends.append(self._characters + len(held.decode("utf-8", "replace")))
        return text

    def finish(self) -> str:
        """The bytes held; the ends of their tokens are known already."""
        return self._utf8.decode(b"", final=True)


class AnyDecoder:
    """For any vocabulary: a token's text is what it adds to that of those before it.

    Where later tokens change the text of earlier ones (byte fallback takes a whole run of bytes for invalid), what is
    out stays as it is.
    """

    def __init__(self, backend: Tokenizer, table: TokenTable) -> None:
        self._backend = backend
        self._table = table
        self._context: list[int] = []  # the tokens whose text came out last
        self._known = 0  # characters they are decoded to
        self._waiting: list[int] = []  # since then; their last character is incomplete
        self._characters = 0
        self.ends: deque[int] = deque()

    def push(self, token_id: int) -> str:
        """What the waiting tokens are decoded to with this one, unless its last character is incomplete and may end."""
        if self._table.special(token_id) is not None and not self._waiting:
            self.ends.append(self._characters)
            return ""
        self._waiting.append(token_id)
        text = self._decode()
        incomplete = not text or text.endswith(REPLACEMENT)
        return "" if incomplete and len(self._waiting) < _MOST_WAITING else self._give(text)

    def finish(self) -> str:
        """What the waiting tokens are decoded to as they are."""
        return self._give(self._decode())

    def _decode(self) -> str:
        return self._backend.decode(self._context + self._waiting, skip_special_tokens=True)[self._known :]

    def _give(self, text: str) -> str:
        self._characters += len(text)
        self.ends.extend([self._characters] * len(self._waiting))
        if self._waiting:
            self._context, self._waiting = self._waiting, []
            self._known = len(self._backend.decode(self._context, skip_special_tokens=True))
        return text
