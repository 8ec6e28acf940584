"""Pool of KV blocks: allocation, sharing by content digest, reclaiming. Bookkeeping only, no tensors.

A block is in exactly one of three states: *free*, *cached* (published content, held by no sequence, reclaimed least
recently used first) or *held* (by one or more sequences). A block may be written only while exactly one sequence holds
it and its content is unpublished. Publishing a full block of committed tokens makes it immutable and shareable. With a
host cache, the content of a reclaimed block is copied there first (``host_cache``).
"""

from collections import OrderedDict
from collections.abc import Iterable

from outrider.engines.kv.host_cache import HostCopy, HostKvCache


class BlockPool:
    """A fixed number of KV blocks, numbered 0 .. total - 1.

    Attributes:
        host_cache: content of reclaimed blocks.
        swapped_out_blocks: blocks copied to it; ``swapped_in_blocks``: blocks copied back.
    """

    def __init__(self, total: int, host_slots: int = 0) -> None:
        if total < 1:
            raise ValueError(f"a block pool needs at least 1 block, found {total}")
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total
        self._digest_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()
        self.host_cache = HostKvCache(host_slots)
        self._copies: list[HostCopy] = []
        self._fresh: dict[int, None] = {}  # allocated to be written since ``taken_fresh``; dict as an ordered set
        self.swapped_out_blocks = self.swapped_in_blocks = 0

    @property
    def available(self) -> int:
        """Number of blocks that ``allocate`` can hand out: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def held(self) -> int:
        return self.total - self.available

    def allocate(self, count: int) -> list[int]:
        """Hand out ``count`` private, writable blocks: free ones first, then the least recently used cached ones.

        Raises:
            MemoryError: fewer than ``count`` are available; none was handed out.
        """
        if count > self.available:
            raise MemoryError(f"needs {count} KV blocks, found {self.available} available")
        blocks = []
        for _ in range(count):
            if self._free:
                block = self._free.pop()
            else:
                # Its content may go to the host cache; then the digest must no longer lead to this block.
                block, _ = self._cached.popitem(last=False)
                self._put_away(block)
                self._unpublish(block)
            self._holders[block] = 1
            self._fresh[block] = None
            blocks.append(block)
        return blocks

    def share(self, digest: bytes) -> int | None:
        """Hold the published block of this content and return it; None if there is none."""
        block = self._block_of.get(digest)
        if block is not None:
            self._cached.pop(block, None)
            self._holders[block] += 1
        return block

    def has(self, digest: bytes) -> bool:
        return digest in self._block_of or digest in self.host_cache

    def publish(self, block: int, digest: bytes) -> None:
        """Make a block immutable and shareable by its digest, unless the same content is published already."""
        if self._holders[block] == 0:
            raise ValueError(f"block {block} is not in use and cannot be published")
        if digest not in self._block_of and block not in self._digest_of:
            self._digest_of[block] = digest
            self._block_of[digest] = block

    def copy_back(self, block: int, digest: bytes) -> None:
        """Fill a private block from the host cache, and publish it. The copy is due before the next pass."""
        self._copies.append(HostCopy(block, self.host_cache.get(digest), out=False))
        self.swapped_in_blocks += 1
        self._fresh.pop(block, None)
        self.publish(block, digest)

    def taken_copies(self) -> list[HostCopy]:
        """Return the copies due before the next pass, to be made in this order, and forget them."""
        copies, self._copies = self._copies, []
        return copies

    def taken_fresh(self) -> list[int]:
        """Return blocks handed out since the last call, which still hold other sequences' numbers, and forget them."""
        fresh, self._fresh = list(self._fresh), {}
        return fresh

    def withdraw(self, blocks: Iterable[int], digests: Iterable[bytes]) -> None:
        """Unpublish these blocks and drop these digests from the host cache; sequences keep the blocks they hold."""
        for block in blocks:
            self._unpublish(block)
        for digest in digests:
            self.host_cache.drop(digest)

    def release(self, blocks: Iterable[int], *, keep_cache: bool = True) -> None:
        """Release one hold on each block. A published block without holders is cached iff ``keep_cache``, else freed.

        Name a sequence's blocks in order: its last ones are reclaimed first, since a prefix is of use without its tail.
        """
        for block in reversed(list(blocks)):
            if self._holders[block] == 0:
                raise ValueError(f"block {block} is not in use and cannot be released")
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if keep_cache and block in self._digest_of:
                self._cached[block] = None
            else:
                self._unpublish(block)
                self._free.append(block)

    def writable(self, block: int) -> bool:
        """Whether exactly one sequence holds the block and its content is not published."""
        return self._holders[block] == 1 and block not in self._digest_of

    def _put_away(self, block: int) -> None:
        slot = self.host_cache.put(self._digest_of[block]) if self.host_cache.slots else None
        if slot is not None:
            self._copies.append(HostCopy(block, slot, out=True))
            self.swapped_out_blocks += 1

    def _unpublish(self, block: int) -> None:
        digest = self._digest_of.pop(block, None)
        if digest is not None:
            del self._block_of[digest]
