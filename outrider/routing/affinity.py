"""Cache affinity of a request: the coordinator that has its prefix, or else the one its conversation hashes to. Pure.

Ingresses share no state, but agree on the hash (``routing.conversation_hash``). Conversations with one beginning hash
to few coordinators, as the shared prefix is computed and kept at each: to one, and as load pushes them elsewhere, to
twice as many, and so on. The hashed coordinator counts as if it had the conversation's whole own prefix.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from outrider.routing.conversation_hash import hashed_to, nearest
from outrider.routing.prefix_index import BLOCK_TOKENS, MAX_BLOCKS, MAX_HOLDERS, PrefixIndex

Name = TypeVar("Name", bound=Hashable)


class Affinity(Generic[Name]):
    """Of one ingress, which remembers what it sent where itself."""

    def __init__(self, max_blocks: int = MAX_BLOCKS, *, hashing: bool = True) -> None:
        """Nothing was sent yet; without ``hashing`` only what is known counts."""
        self._index: PrefixIndex[Name] = PrefixIndex(max_blocks, follows=hashing)
        self._hashing = hashing
        self._salts: dict[Name, int] = {}

    def __len__(self) -> int:
        return len(self._index)

    def tokens(self, digests: Sequence[Hashable], candidates: Sequence[Name]) -> dict[Name, int]:
        """What each counts for of a request, as ``scores.rank`` counts cached tokens; who is left out, for nothing.

        Args:
            digests: of the request's full leading blocks; none of a short one.
            candidates: who may be chosen.
        """
        matches = self._index.matches(digests)
        found = {name: blocks * BLOCK_TOKENS for name, blocks in matches.items()}
        if self._hashing and digests and candidates:
            branches = self._index.branches(digests)
            shared = branches[-1] if branches else 0
            if max(matches.values(), default=0) <= shared:  # of the conversation itself nothing is known
                at = self._hashed_to(digests, branches, matches, candidates)
                found[at] = found.get(at, 0) + BLOCK_TOKENS * (len(digests) - shared)
        return found

    def note(self, digests: Sequence[Hashable], name: Name) -> None:
        """A request was sent there."""
        self._index.insert(digests, name)

    def forget(self, name: Name) -> None:
        """It is gone, and what it had computed."""
        self._index.forget(name)
        self._salts.pop(name, None)

    def _hashed_to(
        self,
        digests: Sequence[Hashable],
        branches: Sequence[int],
        matches: Mapping[Name, int],
        candidates: Sequence[Name],
    ) -> Name:
        begins, shared = (0, 0, *branches)[-2:]  # where what it shares with the latest others begins, and ends
        holders = sum(blocks >= shared for blocks in matches.values())
        if holders < MAX_HOLDERS:  # else there may be any number of them
            count = 1 << max(0, holders - 1).bit_length()
            candidates = nearest(digests[begins], candidates, self._salts, count)
        return hashed_to(digests[shared], candidates, self._salts)
