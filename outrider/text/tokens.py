"""Single tokens: their bytes, their names, and their positions in a text.

A token need not be whole characters: byte-level BPE writes bytes as letters of its own, and sentencepiece falls back to
tokens such as ``<0xE2>``. So the text of several tokens is not the concatenation of each one's text, but of their
bytes.
"""

import codecs
import json
import re

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from outrider.contracts.errors import ModelUnavailableError

_BYTE_OF = {char: byte for byte, char in bytes_to_unicode().items()}  # GPT-2's letters for bytes
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BEFORE = "a"  # a token put before another, so that it is decoded as in the middle of a text


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return the Rust tokenizer inside: unlike its wrapper it may be shared between threads."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelUnavailableError(
            f"needs a tokenizer with a tokenizers backend, found {type(tokenizer).__name__}; "
            "add a tokenizer.json to the model's folder"
        )
    return backend


class TokenTable:
    """Bytes and names of a tokenizer's tokens. May be shared between threads."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._special = {i: token.content for i, token in backend.get_added_tokens_decoder().items() if token.special}
        decoder = backend.decoder
        kinds = set() if decoder is None else _kinds(json.loads(decoder.__getstate__()))
        self._byte_level = "ByteLevel" in kinds
        self._byte_tokens = "ByteFallback" in kinds
        self._spelled: dict[int, bytes] = {}  # cache for a byte-level vocabulary

    def special(self, token_id: int) -> str | None:
        return self._special.get(token_id)

    def data(self, token_id: int, *, leading: bool = False) -> bytes | None:
        """Return the bytes of a token in a text, b"" for a special one; None if there is no such token.

        ``leading``: whether it is the first of the text (some tokenizers drop its leading space).
        """
        if (known := self._spelled.get(token_id)) is not None:
            return known
        token = self._backend.id_to_token(token_id)
        if token is None or token_id in self._special:
            return None if token is None else b""
        if self._byte_level:
            spelled = all(char in _BYTE_OF for char in token)  # an added token is plain text
            data = self._spelled[token_id] = bytes(map(_BYTE_OF.__getitem__, token)) if spelled else token.encode()
            return data
        if self._byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(match[1])
        if self._backend.decoder is None:
            return token.encode()
        text = str(self._backend.decoder.decode([token] if leading else [_BEFORE, token]))
        return (text if leading else text.removeprefix(_BEFORE)).encode()

    def name(self, token_id: int) -> str:
        r"""Return a token as OpenAI writes it: its text, or ``bytes:\xe2\x9d`` where that is no text by itself."""
        if token_id in self._special:
            return self._special[token_id]
        data = self.data(token_id)
        if data is None:
            return f"<|no token {token_id}|>"  # an output of the model that its tokenizer does not use
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class TextOffsets:
    """Offset of each token in a text, in characters; within a character split over tokens, that character's offset.

    Args:
        table: of the tokenizer.
        start: offset of the first token.
        spelled: the text from character 0, if special tokens may be written out in it; else they have no length.
        special: whether all of them are written out.
    """

    def __init__(self, table: TokenTable, start: int = 0, spelled: str = "", *, special: bool = False) -> None:
        self._table, self._spelled, self._chars, self._special = table, spelled, start, special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._leading = True

    def next(self, token_id: int) -> int:
        offset = self._chars
        special = self._table.special(token_id)
        if special is not None:
            self._chars += len(special) if self._special or self._spelled.startswith(special, offset) else 0
        else:
            data = self._table.data(token_id, leading=self._leading) or b""
            self._chars += len(self._decoder.decode(data))
            self._leading = False
        return min(offset, len(self._spelled)) if self._spelled else offset

    @property
    def end(self) -> int:
        """Offset behind the last token."""
        return self._chars


def token_texts(backend: Tokenizer, vocab_size: int) -> list[str]:
    """Return the text of every token by id; bytes that are no text by themselves are left out."""
    table = TokenTable(backend)
    return [(table.data(token_id) or b"").decode(errors="ignore") for token_id in range(vocab_size)]


def _kinds(decoder: dict[str, object]) -> set[object]:
    parts = decoder.get("decoders", [])
    assert isinstance(parts, list)
    return {decoder["type"]}.union(*map(_kinds, parts))
