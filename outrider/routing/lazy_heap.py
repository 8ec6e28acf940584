"""Keep the name of least rank while ranks change all the time, without scanning all names. Pure.

A heap of (rank, name). Outdated entries stay until they reach the top.
"""

from collections.abc import Container
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

Name = TypeVar("Name", int, str)
_STALE = 4  # entries per name above which the heap is rebuilt


class LazyHeap(Generic[Name]):
    """Names with ranks, which are tuples or numbers; of equal ranks the least name is first."""

    def __init__(self) -> None:
        self._ranks: dict[Name, Any] = {}
        self._heap: list[tuple[Any, Name]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, name: Name) -> bool:
        return name in self._ranks

    def set(self, name: Name, rank: Any) -> None:
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
        """Return the first name not in ``skip``; None if there is none."""
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
        return self._ranks[name]
