"""Who is first by a rank that changes all the time, without looking at everybody. Pure.

A heap of (rank, name) in which ranks that are no longer true are left until they come up.
"""

from collections.abc import Container
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

Name = TypeVar("Name", int, str)
_STALE = 4  # times as many entries as names, and the heap is made anew


class LazyHeap(Generic[Name]):
    """Names and their ranks, which are tuples or numbers; the least is the first, of equals the least name."""

    def __init__(self) -> None:
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
        if name in self._ranks and self._ranks[name] == rank:
            return
        self._ranks[name] = rank
        if len(self._heap) > _STALE * len(self._ranks) + _STALE:
            self._heap = [(rank, name) for name, rank in self._ranks.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (rank, name))

    def drop(self, name: Name) -> None:
        self._ranks.pop(name, None)

    def first(self, skip: Container[Name] = ()) -> Name | None:
        """The first that is not to be skipped; None of nobody."""
        heap, ranks = self._heap, self._ranks
        skipped, found = list[tuple[Any, Name]](), None
        while heap:
            rank, name = heap[0]
            if ranks.get(name) != rank:
                heappop(heap)
            elif name in skip:
                skipped.append(heappop(heap))
            else:
                found = name
                break
        for entry in skipped:
            heappush(heap, entry)
        return found

    def rank(self, name: Name) -> Any:
        """Of one that is ranked."""
        return self._ranks[name]
