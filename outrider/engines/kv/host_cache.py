"""Blocks of host memory, for the content of KV blocks that were reclaimed. Bookkeeping only, no tensors.

Content is named by its digest (``contracts.prefix.block_digest``) and never changes, so a block is copied out once:
what was copied back stays on the shelf, and is free to be given up again.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCopy:
    """One KV block to be copied to a slot of host memory, or back from there."""

    block: int
    slot: int
    out: bool


class HostKvCache:
    """So many slots; the content that was used least recently goes first."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._slot_of: OrderedDict[bytes, int] = OrderedDict()
        self._awaited: frozenset[bytes] = frozenset()

    def __contains__(self, digest: bytes) -> bool:
        """Whether this content is here."""
        return digest in self._slot_of

    @property
    def used(self) -> int:
        return len(self._slot_of)

    def put(self, digest: bytes) -> int | None:
        """A slot to copy this content to; None if it is here already, or there is no room."""
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
        """The slot of content that is here."""
        self._slot_of.move_to_end(digest)
        return self._slot_of[digest]

    def drop(self, digest: bytes) -> None:
        """Hold this content no more, if it is here."""
        if (slot := self._slot_of.pop(digest, None)) is not None:
            self._free.append(slot)

    @contextmanager
    def awaiting(self, digests: list[bytes]) -> Iterator[None]:
        """Meanwhile none of these goes: they are about to be copied back."""
        self._awaited = frozenset(digests)
        try:
            yield
        finally:
            self._awaited = frozenset()
