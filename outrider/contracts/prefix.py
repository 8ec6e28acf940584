"""Identity of token prefixes: a rolling hash for rounds, a chained SHA-256 digest for shared KV blocks."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence

_MODULUS = 2**61 - 1
_BASE = 1_000_003_999_999
EMPTY_PREFIX_HASH = 0


def extend_prefix_hash(prefix_hash: int, token_ids: Iterable[int]) -> int:
    """Return the hash of a prefix extended by ``token_ids``: a polynomial modulo 2^61 - 1, so it can be rolled forward.

    It distinguishes prefixes of one generation: a block that assumes another one is stale. It does not resist an
    adversary; ``block_digest`` does.
    """
    for token_id in token_ids:
        prefix_hash = (prefix_hash * _BASE + token_id + 1) % _MODULUS
    return prefix_hash


def common_prefix(ones: Sequence[int], others: Sequence[int]) -> int:
    length = 0
    for one, other in zip(ones, others, strict=False):
        if one != other:
            break
        length += 1
    return length


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the digest of a full KV block: SHA-256 over its tokens and the parent's digest, 32 bytes.

    Blocks are shared between users, so equal digests must mean equal content. The first block's ``parent`` is a salt:
    generations of the same salt share blocks. A salt is empty or has another length than a digest, so that none can
    pass for a digest.
    """
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()
