"""Tokenising of texts that may be far too long: each token takes some 300 bytes and 3 to 7 us."""

from itertools import accumulate

from tokenizers import Tokenizer

_LEAST_BYTES = 2**16  # longer texts are checked piece by piece first
_PIECE_CHARS = 2**14  # of up to four tokens each


def encode_bounded(text: str, backend: Tokenizer, most_tokens: int, *, add_special_tokens: bool) -> list[int] | int:
    """Return a text's token ids; or for one far longer than ``most_tokens`` only a lower bound of their number.

    A text of so many bytes that it may have too many tokens is encoded in pieces first. Each cut may add a few tokens,
    so a text is refused only at a quarter more than the limit.
    """
    if len(text) > _PIECE_CHARS and _utf8_bytes(text) > max(_LEAST_BYTES, most_tokens):
        pieces = (text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS))
        counts = accumulate(len(_encode(piece, backend, add_special_tokens=False)) for piece in pieces)
        if (enough := next((count for count in counts if count > most_tokens * 5 // 4 + 1024), None)) is not None:
            return enough * 4 // 5
    return _encode(text, backend, add_special_tokens=add_special_tokens)


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def decode(token_ids: list[int], backend: Tokenizer) -> str:
    """Decode token ids, special tokens included."""
    (text,) = backend.decode_batch(
        [token_ids], skip_special_tokens=False
    )  # releases the GIL, which ``decode`` does not
    return str(text)


def _encode(text: str, backend: Tokenizer, *, add_special_tokens: bool) -> list[int]:
    # The backend's encoding method that releases the GIL.
    (encoding,) = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return list(encoding.ids)
