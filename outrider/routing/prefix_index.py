"""Record which coordinators computed which prefix, by block digests; bounded by forgetting the least recently used.

The index follows what was sent where, not what engines still hold, so it may be wrong; that costs a prefill. Only the
latest holders of a block are kept: a system prompt that all have would otherwise cost each request a scan of all.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from outrider.contracts.prefix import block_digest

BLOCK_TOKENS = 16
MAX_BLOCKS = 100_000  # of one index, some 40 MiB
MAX_HOLDERS = 32  # of one block

Holder = TypeVar("Holder", bound=Hashable)


def leading_digests(token_ids: Sequence[int], block_tokens: int, salt: bytes = b"") -> list[bytes]:
    """Return digests of the full leading blocks; each covers the ``salt`` and all blocks before it."""
    digests: list[bytes] = []
    parent = salt
    for end in range(block_tokens, len(token_ids) + 1, block_tokens):
        parent = block_digest(parent, token_ids[end - block_tokens : end])
        digests.append(parent)
    return digests


class PrefixIndex(Generic[Holder]):
    def __init__(self, max_blocks: int, max_holders: int = MAX_HOLDERS) -> None:
        """Bound blocks, and holders of each."""
        self._max_blocks, self._max_holders = max_blocks, max_holders
        self._holders: OrderedDict[Hashable, dict[Holder, None]] = OrderedDict()
        self._next: dict[Hashable, Hashable] = {}  # the block behind each, or None if there were several

    def __len__(self) -> int:
        return len(self._holders)

    def insert(self, digests: Sequence[Hashable], holder: Holder) -> None:
        """Record that a holder computes these leading blocks of a sequence."""
        blocks = self._holders
        for digest in reversed(digests):  # the first block is shared by most, so it is forgotten last
            holders = blocks.get(digest)
            if holders is None:
                blocks[digest] = {holder: None}
                continue
            blocks.move_to_end(digest)
            holders.pop(holder, None)
            holders[holder] = None
            if len(holders) > self._max_holders:
                del holders[next(iter(holders))]
        for digest, behind in pairwise(digests):
            if self._next.setdefault(digest, behind) != behind:
                self._next[digest] = None
        while len(blocks) > self._max_blocks:
            self._next.pop(blocks.popitem(last=False)[0], None)

    def branches(self, digests: Sequence[Hashable]) -> list[int]:
        """Return after how many leading blocks others continued differently, as at the end of a system prompt."""
        behind = enumerate(pairwise(digests), start=1)
        return [count for count, (digest, after) in behind if self._next.get(digest, after) != after]

    def matches(self, digests: Sequence[Hashable]) -> Mapping[Holder, int]:
        """Return the number of leading blocks of each holder; a holder of a block has all blocks before it."""
        found: dict[Holder, int] = {}
        for count, digest in enumerate(digests, start=1):
            holders = self._holders.get(digest)
            if holders is None:
                break
            found.update(dict.fromkeys(holders, count))
        return found

    def forget(self, holder: Holder) -> None:
        for digest, holders in list(self._holders.items()):
            holders.pop(holder, None)
            if not holders:
                del self._holders[digest]
                self._next.pop(digest, None)
