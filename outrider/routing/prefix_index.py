"""Who has computed which prefix, remembered by block digests. Bounded: the least recently used blocks are forgotten.

It follows what was sent where, not what engines still hold, so it may promise too much: that costs a prefill, no more.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from outrider.contracts.prefix import block_digest

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
    """Holders of prefixes."""

    def __init__(self, max_blocks: int) -> None:
        """Remember at most so many blocks."""
        self._max_blocks = max_blocks
        self._holders: OrderedDict[bytes, set[Holder]] = OrderedDict()

    def __len__(self) -> int:
        """Blocks remembered."""
        return len(self._holders)

    def insert(self, digests: Sequence[bytes], holder: Holder) -> None:
        """Note that a holder computes these blocks, which are the leading ones of some sequence."""
        for digest in reversed(digests):  # the first block is used by most, so it is to be forgotten last
            self._holders.setdefault(digest, set()).add(holder)
            self._holders.move_to_end(digest)
        while len(self._holders) > self._max_blocks:
            self._holders.popitem(last=False)

    def matches(self, digests: Sequence[bytes]) -> Mapping[Holder, int]:
        """How many of the leading blocks each holder has, without a gap."""
        found: dict[Holder, int] = {}
        for count, digest in enumerate(digests, start=1):
            going_on = {h for h in self._holders.get(digest, ()) if found.get(h, 0) == count - 1}
            if not going_on:
                break
            found.update(dict.fromkeys(going_on, count))
        return found

    def forget(self, holder: Holder) -> None:
        """Take a holder out: it is gone, and what it held."""
        for digest, holders in list(self._holders.items()):
            holders.discard(holder)
            if not holders:
                del self._holders[digest]
