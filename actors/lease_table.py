"""Which drafter serves which generation. Pure bookkeeping: the fleet actor acts on what it returns."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from actors.messages import DrafterId
from outrider.types import GenerationId


@dataclass(slots=True)
class _Entry:
    capacity: int
    ready: bool = False
    generations: set[GenerationId] = field(default_factory=set)


class LeaseTable:
    """Drafters, whether they are ready, and the generations leased to each. A generation holds at most one lease."""

    def __init__(self) -> None:
        """Start without drafters."""
        self._entries: dict[DrafterId, _Entry] = {}

    def add(self, drafter: DrafterId, capacity: int) -> None:
        """Know a drafter that is still starting; it gets no leases yet."""
        self._entries.setdefault(drafter, _Entry(capacity))

    def mark_ready(self, drafter: DrafterId) -> None:
        """Let a drafter be leased."""
        self._entries[drafter].ready = True

    def mark_suspect(self, drafter: DrafterId) -> None:
        """Give a drafter no new leases; those it has stand until it is known to be lost."""
        self._entries[drafter].ready = False

    def mark_lost(self, drafter: DrafterId) -> frozenset[GenerationId]:
        """Take a drafter out and end its leases; returns the generations that held them."""
        entry = self._entries[drafter]
        orphans = frozenset(entry.generations)
        entry.ready = False
        entry.generations.clear()
        return orphans

    def lease(self, generation: GenerationId, exclude: Collection[DrafterId] = ()) -> DrafterId | None:
        """Give the generation the least loaded ready drafter with room (by share of its capacity, then name).

        A lease it already holds is kept unless that drafter is in ``exclude``. None if there is no drafter.
        """
        for drafter, entry in self._entries.items():
            if generation in entry.generations:
                if drafter not in exclude:
                    return drafter
                entry.generations.discard(generation)
        free = [
            (len(entry.generations) / entry.capacity, drafter)
            for drafter, entry in self._entries.items()
            if entry.ready and len(entry.generations) < entry.capacity and drafter not in exclude
        ]
        if not free:
            return None
        _, drafter = min(free)
        self._entries[drafter].generations.add(generation)
        return drafter

    def release(self, generation: GenerationId) -> None:
        """End the generation's lease, if it has one."""
        for entry in self._entries.values():
            entry.generations.discard(generation)

    def loads(self) -> Mapping[DrafterId, int]:
        """Generations leased to each ready drafter."""
        return {drafter: len(entry.generations) for drafter, entry in self._entries.items() if entry.ready}
