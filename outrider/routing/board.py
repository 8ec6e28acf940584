"""The best candidate for a request, found without ranking all: ``scores.ranked``'s first where all take alike many.

Of those with nothing cached of a request's prefix the least loaded is the best, and few have anything cached. So these
few are ranked, beside the one that is first of all by load alone.
"""

from collections.abc import Mapping
from typing import Generic

from outrider.routing.scores import Rank, rank
from outrider.routing.standing import Name, Standing


class LoadBoard(Generic[Name]):
    """Candidates with what is under way at each."""

    def __init__(self, capacity: int) -> None:
        """Nobody; each will take so many at once."""
        self._capacity = capacity
        self._loads: dict[Name, int] = {}
        self._dispatched: dict[Name, int] = {}
        self._standing: Standing[Name] = Standing()

    def add(self, name: Name) -> None:
        """A candidate more, with nothing under way."""
        self._loads[name] = self._dispatched[name] = 0
        self._standing.set(name, (0, 0))

    def drop(self, name: Name) -> None:
        """It is gone, and what was under way there."""
        del self._loads[name], self._dispatched[name]
        self._standing.drop(name)

    def sent(self, name: Name) -> None:
        """One more is under way there."""
        self._dispatched[name] += 1
        self._change(name, 1)

    def ended(self, name: Name) -> None:
        """One fewer; if it is known at all."""
        if name in self._loads:
            self._change(name, -1)

    @property
    def loads(self) -> Mapping[Name, int]:
        """What is under way at each."""
        return self._loads

    def has_room(self, name: Name) -> bool:
        """Whether it would take one more."""
        return self._loads[name] < self._capacity

    def best(self, cached_tokens: Mapping[Name, int]) -> Name | None:
        """For a request of whose prefix so much is cached; None if everybody is full."""
        loads, dispatched = self._loads, self._dispatched
        first = self._standing.first()
        if first is None or loads[first] >= self._capacity:
            return None
        candidates = {first: cached_tokens.get(first, 0)}
        candidates.update((name, tokens) for name, tokens in cached_tokens.items() if name in loads)

        def rank_of(name: Name) -> tuple[Rank, Name]:
            return rank(loads[name], candidates[name], dispatched[name], self._capacity), name

        return min(candidates, key=rank_of)

    def _change(self, name: Name, by: int) -> None:
        self._loads[name] += by
        self._standing.set(name, (self._loads[name], self._dispatched[name]))
