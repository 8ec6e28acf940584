"""Ray Serve's prefix-aware LLM router (``PrefixCacheAffinityRouter`` of Ray 2.60, default settings): a baseline.

All ingresses share one prefix tree. If at least a tenth of a request is in the tree, the replicas with its longest
prefix are candidates; else those with least in the tree. The candidate with the shortest queue gets the request. As in
the default settings, unequal queues change nothing else (``imbalanced_threshold`` is infinite) and nothing is evicted.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

Name = TypeVar("Name", int, str)

_MATCH_RATE = 0.1


class ServePrefixTree(Generic[Name]):
    """The prefix tree, in token blocks; Serve's is in characters."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, set[Name]] = {}
        self._sizes: Counter[Name] = Counter()

    def candidates(self, digests: Sequence[Hashable], names: Collection[Name]) -> list[Name]:
        """Return the replicas that may be given a request."""
        matched, known = 0, set(names)
        for digest in digests:
            holders = self._holders.get(digest, set()) & known
            if not holders:
                break
            matched, best = matched + 1, holders
        if digests and matched / len(digests) >= _MATCH_RATE:
            return sorted(best)
        least = min(self._sizes[name] for name in names)
        return [name for name in names if self._sizes[name] == least]

    def insert(self, digests: Sequence[Hashable], name: Name) -> None:
        """Record that a request was sent to ``name``."""
        for digest in digests:
            holders = self._holders.setdefault(digest, set())
            if name not in holders:
                holders.add(name)
                self._sizes[name] += 1

    def forget(self, name: Name) -> None:
        self._sizes.pop(name, None)
        for holders in self._holders.values():
            holders.discard(name)


def shortest(candidates: Collection[Name], loads: Mapping[Name, int], capacity: int) -> Name | None:
    """Return the candidate with the fewest responses under way; None if all are full."""
    free = [name for name in candidates if loads[name] < capacity]
    return min(free, key=lambda name: (loads[name], name), default=None)
