"""Compute the cache affinity of a request: coordinators with its prefix, and the one it hashes to. Pure.

Ingresses share no state, but agree on the hash (``nearest``). Conversations that begin alike hash to
a set of 1, 2, 4, ... coordinators, as many as hold the shared prefix: each of these computes and keeps it, and the set
grows as load moves conversations elsewhere. The hashed coordinator counts as if it had the conversation's whole own
prefix.
"""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from heapq import nlargest
from typing import Generic, TypeVar

import numpy as np

from outrider.routing.prefix_index import BLOCK_TOKENS, MAX_BLOCKS, MAX_HOLDERS, PrefixIndex

Name = TypeVar("Name", bound=Hashable)


class Affinity(Generic[Name]):
    """Affinities at one ingress, from the requests that it sent itself."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._index: PrefixIndex[Name] = PrefixIndex(max_blocks)
        self._salts: dict[Name, int] = {}

    def __len__(self) -> int:
        return len(self._index)

    def tokens(self, digests: Sequence[Hashable], candidates: Sequence[Name], key: bytes = b"") -> dict[Name, int]:
        """Return cached tokens by candidate, as ``scores.rank`` counts them; candidates left out have none.

        Args:
            digests: of the request's full leading blocks; none of a short one.
            candidates: coordinators that may be chosen.
            key: what the request is hashed by where no prefix decides; b"": its own prefix.
        """
        matches = self._index.matches(digests)
        found = {name: blocks * BLOCK_TOKENS for name, blocks in matches.items()}
        if (digests or key) and candidates:
            branches = self._index.branches(digests)
            shared = branches[-1] if branches else 0
            if max(matches.values(), default=0) <= shared:  # the conversation itself was not seen yet
                if key:
                    at = hashed_to(key, candidates, self._salts)
                else:
                    at = self._hashed_to(digests, branches, matches, candidates)
                found[at] = found.get(at, 0) + BLOCK_TOKENS * max(len(digests) - shared, 1)
        return found

    def note(self, digests: Sequence[Hashable], name: Name) -> None:
        self._index.insert(digests, name)

    def forget(self, name: Name) -> None:
        self._index.forget(name)
        self._salts.pop(name, None)

    def _hashed_to(
        self,
        digests: Sequence[Hashable],
        branches: Sequence[int],
        matches: Mapping[Name, int],
        candidates: Sequence[Name],
    ) -> Name:
        begins, shared = (0, 0, *branches)[-2:]  # start and end of the prefix shared with others last
        holders = sum(blocks >= shared for blocks in matches.values())
        if holders < MAX_HOLDERS:  # the index counts no further; then all candidates take part
            count = 1 << max(0, holders - 1).bit_length()
            candidates = nearest(digests[begins], candidates, self._salts, count)
        return hashed_to(digests[shared], candidates, self._salts)


_MASK = (1 << 64) - 1
_MANY = 32  # candidates from which arrays are faster
_FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9


def hashed_to(key: Hashable, candidates: Sequence[Name], salts: dict[Name, int]) -> Name:
    """Return the hashed coordinator of a conversation, of at least one candidate in any order.

    ``key`` is a block digest (bytes), or a number that stands for one; new candidates are added to ``salts``.
    """
    return nearest(key, candidates, salts, 1)[0]


def nearest(key: Hashable, candidates: Sequence[Name], salts: dict[Name, int], count: int) -> list[Name]:
    """Return the ``count`` candidates of highest hash, highest first. A smaller count returns the first of these.

    Rendezvous hashing (Thaler and Ravishankar 1998): a candidate that leaves moves only its own conversations.
    """
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
