"""Where a conversation is at home, by its content alone: ingresses that know nothing of one another agree. Pure.

Rendezvous hashing (Thaler and Ravishankar 1998): of all candidates the one whose hash with the conversation's key is
the highest. One that leaves moves its own conversations only.
"""

import hashlib
from collections.abc import Hashable, Iterable
from heapq import nlargest
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)

_MASK = (1 << 64) - 1
_FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9


def home(key: Hashable, candidates: Iterable[Name], salts: dict[Name, int]) -> Name:
    """Of a conversation.

    Args:
        key: a block digest (bytes), or a number that stands for one.
        candidates: who may be chosen, in any order; one at least.
        salts: of candidates that were met before; added to.
    """
    number = _number(key)
    return max(candidates, key=lambda name: _mixed(number, name, salts))


def nearest(key: Hashable, candidates: Iterable[Name], salts: dict[Name, int], count: int) -> list[Name]:
    """The first so many by the same hash, of which ``home`` is the first: fewer are among more."""
    number = _number(key)
    return nlargest(count, candidates, key=lambda name: _mixed(number, name, salts))


def _number(key: Hashable) -> int:
    return int.from_bytes(key[:8], "big") if isinstance(key, bytes) else hash(key) * _FIRST


def _mixed(number: int, name: Hashable, salts: dict[Any, int]) -> int:
    salt = salts.get(name)
    if salt is None:
        salt = salts[name] = int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "big")
    mixed = ((salt ^ number) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * _SECOND) & _MASK
    return mixed ^ (mixed >> 32)
