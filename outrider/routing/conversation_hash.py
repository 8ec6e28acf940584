"""Where a conversation is at home, by its content alone: ingresses that know nothing of one another agree. Pure.

Rendezvous hashing (Thaler and Ravishankar 1998): of all candidates the one whose hash with the conversation's key is
the highest. One that leaves moves its own conversations only.
"""

import hashlib
from collections.abc import Hashable, Sequence
from heapq import nlargest
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)

_MASK = (1 << 64) - 1
_MANY = 32  # candidates: for fewer an array costs more than it saves
_FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9


def hashed_to(key: Hashable, candidates: Sequence[Name], salts: dict[Name, int]) -> Name:
    """Of a conversation.

    Args:
        key: a block digest (bytes), or a number that stands for one.
        candidates: who may be chosen, in any order; one at least.
        salts: of candidates that were met before; added to.
    """
    return nearest(key, candidates, salts, 1)[0]


def nearest(key: Hashable, candidates: Sequence[Name], salts: dict[Name, int], count: int) -> list[Name]:
    """The first so many by the same hash, of which ``hashed_to`` is the first: fewer are among more."""
    number = _number(key)
    salted = _salted(candidates, salts)
    if len(salted) >= _MANY:
        return [candidates[at] for at in _first_of_many(number, salted, count)]
    hashes = [_mixed(number, salt) for salt in salted]
    return [candidates[at] for at in nlargest(count, range(len(salted)), key=hashes.__getitem__)]


def _number(key: Hashable) -> int:
    return int.from_bytes(key[:8], "big") if isinstance(key, bytes) else hash(key) * _FIRST


def _salted(names: Sequence[Name], salts: dict[Name, int]) -> list[int]:
    try:
        return list(map(salts.__getitem__, names))
    except KeyError:
        for name in names:
            if name not in salts:
                salts[name] = int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "big")
        return [salts[name] for name in names]


def _mixed(number: int, salt: int) -> int:
    mixed = ((salt ^ number) * _FIRST) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * _SECOND) & _MASK
    return mixed ^ (mixed >> 32)


def _first_of_many(number: int, salts: list[int], count: int) -> list[int]:
    """The same by arrays, in which products wrap: whose hashes are the highest, the highest first."""
    mixed = (np.array(salts, np.uint64) ^ np.uint64(number & _MASK)) * np.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(32)
    if count == 1:
        return [int(mixed.argmax())]
    first = np.argpartition(mixed, -min(count, len(salts)))[-count:]
    return [int(at) for at in first[np.argsort(mixed[first])[::-1]]]
