"""Hash a conversation to a coordinator by its content, so that ingresses without shared state agree. Pure.

Rendezvous hashing (Thaler and Ravishankar 1998) takes the candidate whose hash with the conversation's key is highest.
A candidate that leaves moves only its own conversations.
"""

import hashlib
from collections.abc import Hashable, Sequence
from heapq import nlargest
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)

_MASK = (1 << 64) - 1
_MANY = 32  # candidates from which arrays are faster
_FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9


def hashed_to(key: Hashable, candidates: Sequence[Name], salts: dict[Name, int]) -> Name:
    """Return the hashed coordinator of a conversation, of at least one candidate in any order.

    ``key`` is a block digest (bytes), or a number that stands for one; new candidates are added to ``salts``.
    """
    return nearest(key, candidates, salts, 1)[0]


def nearest(key: Hashable, candidates: Sequence[Name], salts: dict[Name, int], count: int) -> list[Name]:
    """Return the ``count`` candidates of highest hash, highest first. A smaller count returns the first of these."""
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
    """Compute the same with arrays, whose products wrap; indices of the highest hashes, highest first."""
    mixed = (np.array(salts, np.uint64) ^ np.uint64(number & _MASK)) * np.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(32)
    if count == 1:
        return [int(mixed.argmax())]
    first = np.argpartition(mixed, -min(count, len(salts)))[-count:]
    return [int(at) for at in first[np.argsort(mixed[first])[::-1]]]
