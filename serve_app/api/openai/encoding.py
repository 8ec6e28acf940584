"""Tokenising of texts that may be far too long: each token takes some 300 bytes and 3 to 7 us."""

from itertools import accumulate

from tokenizers import Tokenizer

_LEAST_CHARS = 2**16  # longer texts are checked piece by piece first


def encode_bounded(text: str, backend: Tokenizer, most_tokens: int, *, add_special_tokens: bool) -> list[int] | int:
    """Return a text's token ids; or for one far longer than ``most_tokens`` only a lower bound of their number.

    A long text is encoded in pieces first. Each cut may add a few tokens, so a text is refused only at twice the limit.
    """
    size = max(_LEAST_CHARS, 2 * most_tokens)
    if len(text) > size:
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        counts = accumulate(len(_encode(piece, backend, add_special_tokens=False)) for piece in pieces)
        if (enough := next((count for count in counts if count > 2 * most_tokens + 1024), None)) is not None:
            return enough // 2
    return _encode(text, backend, add_special_tokens=add_special_tokens)


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
