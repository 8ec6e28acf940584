"""Tokens of a text that may be far too long: of each, a tokenizer makes some 300 bytes and 3 to 7 us of work."""

from itertools import accumulate

from tokenizers import Tokenizer

_LEAST_CHARS = 2**16  # of a text that is looked at piece by piece first


def encode_bounded(text: str, backend: Tokenizer, most_tokens: int, *, add_special_tokens: bool) -> list[int] | int:
    """Token ids of a text, however many; or of one that has far more than ``most_tokens`` a number that it exceeds.

    A long text is encoded in pieces first. Where it is cut costs a few tokens more for each piece, so it is refused
    only for twice as many as it may have.
    """
    size = max(_LEAST_CHARS, 2 * most_tokens)
    if len(text) > size:
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        counts = accumulate(len(_encode(piece, backend, add_special_tokens=False)) for piece in pieces)
        if (enough := next((count for count in counts if count > 2 * most_tokens + 1024), None)) is not None:
            return enough // 2
    return _encode(text, backend, add_special_tokens=add_special_tokens)


def decode(token_ids: list[int], backend: Tokenizer) -> str:
    """What ids spell, special tokens included."""
    (text,) = backend.decode_batch(
        [token_ids], skip_special_tokens=False
    )  # lets other threads run; ``decode`` does not
    return str(text)


def _encode(text: str, backend: Tokenizer, *, add_special_tokens: bool) -> list[int]:
    # Of the backend's ways to encode, the one that lets other threads run meanwhile.
    (encoding,) = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return list(encoding.ids)
