"""Host cache: host memory for the content of reclaimed KV blocks. Bookkeeping only, no tensors.

Content is identified by its digest (``contracts.prefix.block_digest``) and never changes, so a block is copied out
once. A block that was copied back stays in the host cache; when it is reclaimed again, no copy is made.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Copy of one KV block to a slot of host memory (``out``), or back."""

    block: int
    slot: int
    out: bool


class HostKvCache:
    """A fixed number of slots; the least recently used content is evicted first."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._slot_of: OrderedDict[bytes, int] = OrderedDict()
        self._awaited: frozenset[bytes] = frozenset()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._slot_of

    @property
    def used(self) -> int:
        return len(self._slot_of)

    def put(self, digest: bytes) -> int | None:
        """Return a slot to copy this content to; None if it is cached already, or every slot is awaited."""
        if digest in self._slot_of:
            self._slot_of.move_to_end(digest)
            return None
        if not self._free:
            oldest = next((held for held in self._slot_of if held not in self._awaited), None)
            if oldest is None:
                return None
            self._free.append(self._slot_of.pop(oldest))
        self._slot_of[digest] = slot = self._free.pop()
        return slot

    def get(self, digest: bytes) -> int:
        self._slot_of.move_to_end(digest)
        return self._slot_of[digest]

    def drop(self, digest: bytes) -> None:
        if (slot := self._slot_of.pop(digest, None)) is not None:
            self._free.append(slot)

    @contextmanager
    def awaiting(self, digests: list[bytes]) -> Iterator[None]:
        """Protect these digests from eviction until they are copied back."""
        self._awaited = frozenset(digests)
        try:
            yield
        finally:
            self._awaited = frozenset()
