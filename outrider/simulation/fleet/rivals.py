"""Ray Serve's router for LLMs, by its published rule (``PrefixCacheAffinityRouter`` of Ray 2.60, as it comes).

One prefix tree for all ingresses. Of a request of which a tenth is known or more, the replicas that know most of it are
candidates, else those with least in the tree; of these the one with the shortest queue is taken. Queue lengths that
differ are no reason for anything else (its ``imbalanced_threshold`` is infinite), and nothing is forgotten.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

Name = TypeVar("Name", int, str)

_MATCH_RATE = 0.1


class ServePrefixTree(Generic[Name]):
    """By blocks, where Serve's goes by characters."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, set[Name]] = {}
        self._sizes: Counter[Name] = Counter()

    def candidates(self, digests: Sequence[Hashable], names: Collection[Name]) -> list[Name]:
        """Who may be given a request."""
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
        """A request was sent there."""
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
    """Of the candidates with a place, the one with least under way; None if they are full."""
    free = [name for name in candidates if loads[name] < capacity]
    return min(free, key=lambda name: (loads[name], name), default=None)
