"""Decode tokens to text one at a time; a character is returned once it is complete.

A byte-level vocabulary (GPT-2's kind, as most current models have) is decoded byte by byte: constant cost per token,
and the end of each token in the text is known. With any other vocabulary the backend decodes the last tokens again at
each step, which needs no knowledge of its rules. The cost grows only while a character stays incomplete, over a bounded
number of tokens.
"""

from codecs import getincrementaldecoder
from collections import deque
from functools import lru_cache
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

from outrider.text.tokens import TokenTable

REPLACEMENT = "\ufffd"  # stands for bytes that are no valid character
_KEPT_TABLES = 4
_MOST_WAITING = 64  # tokens without a complete character; a character has at most four bytes


class TextDecoder(Protocol):
    """Decoder of one response: its texts are the backend's ``decode`` of the tokens, special ones left out or not."""

    ends: deque[int]
    """For each token, in order: characters up to its last one; as soon as that is known. The reader takes them away."""

    def push(self, token_id: int) -> str:
        """Take a token; return the characters it completes."""

    def skip(self) -> str:
        """Take a token without a text of its own; return the characters that the tokens before it had waiting."""

    def finish(self) -> str:
        """Return the rest; incomplete characters become U+FFFD."""


def text_decoder(backend: Tokenizer, *, special: bool = False) -> TextDecoder:
    """Return the decoder for a tokenizer; ``special``: its special tokens have a text."""
    table = _table(backend)
    if isinstance(backend.decoder, ByteLevel):
        return ByteLevelDecoder(table, special=special)
    return AnyDecoder(backend, table, special=special)


@lru_cache(_KEPT_TABLES)
def _table(backend: Tokenizer) -> TokenTable:
    """Return a table shared by all responses: reading a vocabulary's special tokens is slow."""
    return TokenTable(backend)


class ByteLevelDecoder:
    """Decoder for vocabularies whose tokens are bytes, each written as one printable character."""

    def __init__(self, table: TokenTable, *, special: bool = False) -> None:
        self._table, self._special = table, special
        self._utf8 = getincrementaldecoder("utf-8")("replace")
        self._characters = 0
        self._whole = True  # no byte of an incomplete character is held
        self.ends: deque[int] = deque()

    def push(self, token_id: int) -> str:
        """Return the characters that the token's bytes complete."""
        data = self._table.data(token_id) or b""
        if self._special and not data:
            data = (self._table.special(token_id) or "").encode()
        if self._whole and data.isascii():  # most tokens
            self._characters += len(data)
            self.ends.append(self._characters)
            return data.decode("ascii")
        text = self._utf8.decode(data)
        self._characters += len(text)
        held = self._utf8.getstate()[0]  # becomes as many characters as decoded now, whatever follows
        self._whole = not held
        self.ends.append(self._characters + len(held.decode("utf-8", "replace")))
        return text

    def skip(self) -> str:
        """Count the token as shown once the held bytes are."""
        self.ends.append(self._characters + len(self._utf8.getstate()[0].decode("utf-8", "replace")))
        return ""

    def finish(self) -> str:
        """Return the held bytes; the ends of their tokens are known already."""
        return self._utf8.decode(b"", final=True)


class AnyDecoder:
    """Decoder for any vocabulary: a token's text is what it adds to the text of the tokens before it.

    Text that was returned stays as it is, even where later tokens would change it (byte fallback replaces a whole run
    of bytes if it is invalid).
    """

    def __init__(self, backend: Tokenizer, table: TokenTable, *, special: bool = False) -> None:
        self._backend = backend
        self._table, self._special = table, special
        self._context: list[int] = []  # tokens whose text was returned last
        self._known = 0  # characters of their text
        self._waiting: list[int] = []  # tokens after these, whose last character is incomplete
        self._characters = 0
        self.ends: deque[int] = deque()

    def push(self, token_id: int) -> str:
        """Return the text of the waiting tokens, unless its last character is incomplete and may be completed."""
        if not self._special and self._table.special(token_id) is not None and not self._waiting:
            self.ends.append(self._characters)
            return ""
        self._waiting.append(token_id)
        text = self._decode()
        incomplete = not text or text.endswith(REPLACEMENT)
        return "" if incomplete and len(self._waiting) < _MOST_WAITING else self._give(text)

    def skip(self) -> str:
        """Return the text of the waiting tokens as they are: the token is the last one."""
        text = self.finish()
        self.ends.append(self._characters)
        return text

    def finish(self) -> str:
        """Return the text of the waiting tokens as they are."""
        return self._give(self._decode())

    def _decode(self) -> str:
        return self._text(self._context + self._waiting)[self._known :]

    def _text(self, token_ids: list[int]) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=not self._special)

    def _give(self, text: str) -> str:
        self._characters += len(text)
        self.ends.extend([self._characters] * len(self._waiting))
        if self._waiting:
            self._context, self._waiting = self._waiting, []
            self._known = len(self._text(self._context))
        return text
