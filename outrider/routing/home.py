"""Where a conversation is at home, by its content alone: ingresses that know nothing of one another agree. Pure.

Rendezvous hashing (Thaler and Ravishankar 1998): of all candidates the one whose hash with the conversation's key is
the highest. One that leaves moves its own conversations only.
"""

import hashlib
from collections.abc import Hashable, Iterable
from typing import TypeVar

from outrider.routing.scores import LOAD_TOKENS

Name = TypeVar("Name", bound=Hashable)

# A home attracts as the prefix would that may be there, and at least as so many responses fewer under way would.
HOME_TOKENS = 8 * LOAD_TOKENS

_MASK = (1 << 64) - 1
_FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9


def home(key: Hashable, candidates: Iterable[Name], salts: dict[Name, int]) -> Name:
    """Of a conversation.

    Args:
        key: a block digest (bytes), or a number that stands for one.
        candidates: who may be chosen, in any order; one at least.
        salts: of candidates that were met before; added to.
    """
    number = int.from_bytes(key[:8], "big") if isinstance(key, bytes) else hash(key) * _FIRST
    best: tuple[int, Name] | None = None
    for name in candidates:
        salt = salts.get(name)
        if salt is None:
            salt = salts[name] = int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "big")
        mixed = ((salt ^ number) * _FIRST) & _MASK
        mixed = ((mixed ^ (mixed >> 29)) * _SECOND) & _MASK
        mixed ^= mixed >> 32
        if best is None or mixed > best[0]:
            best = mixed, name
    assert best is not None, "one candidate at least"
    return best[1]


def home_tokens(own_tokens: int) -> int:
    """What a home counts for, of a request with so many tokens that no other conversation begins with."""
    return max(own_tokens, HOME_TOKENS)
