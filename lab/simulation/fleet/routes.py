"""Route requests to coordinators by the product's router, from one ingress or several."""

from collections.abc import Mapping
from typing import Generic

from lab.simulation.fleet.scenario import RouterRules
from outrider.routing.affinity import Affinity
from outrider.routing.lazy_heap import LazyHeap, Name
from outrider.routing.load_units import NOTHING_REPORTED, CoordinatorLoad, beyond, filling
from outrider.routing.scores import LOAD_TOKENS, Rank, rank, tokens_per_response


class LoadBoard(Generic[Name]):
    """Candidates with their responses under way and the load that they reported; all have equal capacity.

    It finds the best of ``scores.ranked`` without ranking all: among candidates without a cached prefix the least
    loaded is the best, and few have one cached, so only those few and the least loaded one are ranked.
    """

    def __init__(self, capacity: int) -> None:
        """Start without candidates; each takes ``capacity`` responses at once."""
        self._capacity = capacity
        self._ongoing: dict[Name, int] = {}
        self._dispatched: dict[Name, int] = {}
        self._reported: dict[Name, CoordinatorLoad] = {}
        self._beyond: dict[Name, float] = {}
        self._shares = self._responses = 0.0  # of all together
        self._heap: LazyHeap[Name] = LazyHeap()

    def add(self, name: Name) -> None:
        self._ongoing[name] = self._dispatched[name] = 0
        self._reported[name], self._beyond[name] = NOTHING_REPORTED, 0.0
        self._rank(name)

    def drop(self, name: Name) -> None:
        self.report(name, NOTHING_REPORTED)
        del self._ongoing[name], self._dispatched[name], self._reported[name], self._beyond[name]
        self._heap.drop(name)

    def report(self, name: Name, fullness: CoordinatorLoad) -> None:
        before, self._reported[name] = self._reported[name], fullness
        self._shares += fullness.bounded - before.bounded
        self._responses += fullness.responses - before.responses
        self._beyond[name] = beyond(fullness, self._filling)
        self._rank(name)

    def sent(self, name: Name) -> None:
        self._dispatched[name] += 1
        self._change(name, 1)

    def ended(self, name: Name) -> None:
        """Count one response fewer; no effect for an unknown candidate."""
        if name in self._ongoing:
            self._change(name, -1)

    def load(self, name: Name) -> float:
        """Return the load of a candidate, in mean responses."""
        return self._ongoing[name] + self._beyond[name]

    def has_room(self, name: Name) -> bool:
        return self._ongoing[name] < self._capacity

    def best(self, cached_tokens: Mapping[Name, int]) -> Name | None:
        """Return the best candidate given each one's cached tokens of the request's prefix; None if all are full."""
        first = self._heap.first()
        if first is None or not self.has_room(first):
            return None
        candidates = {first: 0}
        candidates.update((name, tokens) for name, tokens in cached_tokens.items() if name in self._ongoing)
        each_tokens = tokens_per_response(self._filling)

        def rank_of(name: Name) -> tuple[Rank, Name]:
            return self._rank_of(name, candidates[name], each_tokens), name

        return min(candidates, key=rank_of)

    @property
    def _filling(self) -> float:
        return filling(self._shares, self._responses)

    def _change(self, name: Name, by: int) -> None:
        self._ongoing[name] += by
        self._rank(name)

    def _rank(self, name: Name) -> None:
        # without cached tokens any price gives the same order
        self._heap.set(name, self._rank_of(name, 0, LOAD_TOKENS))

    def _rank_of(self, name: Name, cached_tokens: int, each_tokens: float) -> Rank:
        full = not self.has_room(name)
        return rank(self.load(name), cached_tokens, self._dispatched[name], full=full, each_tokens=each_tokens)


class Routes:
    """The routers of all ingresses. Coordinators are numbers.

    Each ingress knows only the prefixes that it sent itself. The number of responses under way is known to all at once:
    a simplification, as the product's ingresses learn of each other's newest requests only by replicas' reports.
    """

    def __init__(self, rules: RouterRules, capacity: int) -> None:
        """Begin without coordinators; each one added takes ``capacity`` responses."""
        self._board = LoadBoard[int](capacity)
        self._known = [Affinity[int](rules.max_blocks) for _ in range(rules.ingresses)]
        self.up: list[int] = []  # coordinators that take requests, by number

    def add(self, coordinator: int) -> None:
        self._board.add(coordinator)
        self.up = sorted((*self.up, coordinator))

    def drop(self, coordinator: int) -> None:
        """Take a coordinator out and forget the prefixes that it had computed."""
        self._board.drop(coordinator)
        self.up.remove(coordinator)
        for known in self._known:
            known.forget(coordinator)

    def send(self, digests: list[int], ingress: int) -> int | None:
        """Choose and record a coordinator for a request at ``ingress``; return None if none has a place."""
        known = self._known[ingress]
        chosen = self._board.best(known.tokens(digests, self.up) if self.up else {})
        if chosen is not None:
            self._board.sent(chosen)
            known.note(digests, chosen)
        return chosen

    def report(self, coordinator: int, fullness: CoordinatorLoad) -> None:
        self._board.report(coordinator, fullness)

    def ended(self, coordinator: int) -> None:
        self._board.ended(coordinator)
