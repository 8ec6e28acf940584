"""Who is first by a rank that changes all the time, without looking at everybody. Pure.

A heap of (rank, name) in which ranks that are no longer true are left until they come up.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

Name = TypeVar("Name", int, str)
_STALE = 4  # times as many entries as names, and the heap is made anew


class Standing(Generic[Name]):
    """Names and their ranks, which are tuples or numbers; the least is the first, of equals the least name."""

    def __init__(self) -> None:
        """Nobody."""
        self._ranks: dict[Name, Any] = {}
        self._heap: list[tuple[Any, Name]] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self._ranks)

    def __contains__(self, name: Name) -> bool:
        """Whether it is ranked."""
        return name in self._ranks

    def set(self, name: Name, rank: Any) -> None:
        """Rank one, or rank it anew."""
        self._ranks[name] = rank
        if len(self._heap) > _STALE * len(self._ranks) + _STALE:
            self._heap = [(rank, name) for name, rank in self._ranks.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (rank, name))

    def drop(self, name: Name) -> None:
        """Forget one."""
        self._ranks.pop(name, None)

    def first(self) -> Name | None:
        """The first; None of nobody."""
        heap, ranks = self._heap, self._ranks
        while heap:
            rank, name = heap[0]
            if ranks.get(name) == rank:
                return name
            heappop(heap)
        return None
