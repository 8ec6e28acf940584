"""Who has computed which prefix, remembered by block digests. Bounded: the least recently used blocks are forgotten.

It follows what was sent where, not what engines still hold, so it may promise too much: that costs a prefill, no more.
Of who computed a block the latest few are remembered: a system prompt that everybody has would otherwise cost each
request a look at everybody.
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
    """Digests of the full leading blocks, each standing for everything before it as well, and for the ``salt``."""
    digests: list[bytes] = []
    parent = salt
    for end in range(block_tokens, len(token_ids) + 1, block_tokens):
        parent = block_digest(parent, token_ids[end - block_tokens : end])
        digests.append(parent)
    return digests


class PrefixIndex(Generic[Holder]):
    def __init__(self, max_blocks: int, max_holders: int = MAX_HOLDERS, *, follows: bool = False) -> None:
        """Remember at most so many blocks, and of each the latest holders; also what ``follows``, for ``branches``."""
        self._max_blocks, self._max_holders, self._follows = max_blocks, max_holders, follows
        self._holders: OrderedDict[Hashable, dict[Holder, None]] = OrderedDict()
        self._next: dict[Hashable, Hashable] = {}  # the block behind each, or None where there were several

    def __len__(self) -> int:
        return len(self._holders)

    def insert(self, digests: Sequence[Hashable], holder: Holder) -> None:
        """Note that a holder computes these blocks, which are the leading ones of some sequence."""
        blocks = self._holders
        for digest in reversed(digests):  # the first block is used by most, so it is to be forgotten last
            holders = blocks.get(digest)
            if holders is None:
                blocks[digest] = {holder: None}
                continue
            blocks.move_to_end(digest)
            holders.pop(holder, None)
            holders[holder] = None
            if len(holders) > self._max_holders:
                del holders[next(iter(holders))]
        for digest, behind in pairwise(digests) if self._follows else ():
            if self._next.setdefault(digest, behind) != behind:
                self._next[digest] = None
        while len(blocks) > self._max_blocks:
            self._next.pop(blocks.popitem(last=False)[0], None)

    def branches(self, digests: Sequence[Hashable]) -> list[int]:
        """After how many of the leading blocks others went on differently: at the end of a system prompt, say."""
        behind = enumerate(pairwise(digests), start=1)
        return [count for count, (digest, after) in behind if self._next.get(digest, after) != after]

    def matches(self, digests: Sequence[Hashable]) -> Mapping[Holder, int]:
        """How many of the leading blocks each holder has: who computed a block has all before it."""
        found: dict[Holder, int] = {}
        for count, digest in enumerate(digests, start=1):
            holders = self._holders.get(digest)
            if holders is None:
                break
            found.update(dict.fromkeys(holders, count))
        return found

    def forget(self, holder: Holder) -> None:
        """Take a holder out: it is gone, and what it held."""
        for digest, holders in list(self._holders.items()):
            holders.pop(holder, None)
            if not holders:
                del self._holders[digest]
                self._next.pop(digest, None)
