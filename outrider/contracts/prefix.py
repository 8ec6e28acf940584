"""Beginnings of token sequences: a rolling hash for rounds, a chained digest for shared KV blocks, what two share."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence

_MODULUS = 2**61 - 1
_BASE = 1_000_003_999_999
EMPTY_PREFIX_HASH = 0


def extend_prefix_hash(prefix_hash: int, token_ids: Iterable[int]) -> int:
    """Hash of a prefix continued by ``token_ids``: polynomial modulo 2^61 - 1, so it can be rolled forward.

    It tells rounds of one generation apart (a block that assumes another prefix is stale); it is no defence
    against an adversary, for whom ``block_digest`` is.
    """
    for token_id in token_ids:
        prefix_hash = (prefix_hash * _BASE + token_id + 1) % _MODULUS
    return prefix_hash


def common_prefix(ones: Sequence[int], others: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    length = 0
    for one, other in zip(ones, others, strict=False):
        if one != other:
            break
        length += 1
    return length


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Identity of a full KV block: its tokens and everything before them (sha256, 32 bytes).

    Blocks are shared between users, so equality must imply equal content. The first block's ``parent`` is a salt: those
    who have the same share blocks. It is empty, or has another length than a digest.
    """
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()
