"""Compute the cache affinity of a request: coordinators with its prefix, and the one it hashes to. Pure.

Ingresses share no state, but agree on the hash (``routing.conversation_hash``). Conversations that begin alike hash to
a set of 1, 2, 4, ... coordinators, as many as hold the shared prefix: each of these computes and keeps it, and the set
grows as load moves conversations elsewhere. The hashed coordinator counts as if it had the conversation's whole own
prefix.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from outrider.routing.conversation_hash import hashed_to, nearest
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
