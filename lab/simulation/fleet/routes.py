"""Route requests to coordinators by the product's router, from one ingress or several, or by a baseline's rule."""

from lab.simulation.fleet.board import LoadBoard
from lab.simulation.fleet.rivals import ServePrefixTree, shortest
from lab.simulation.fleet.scenario import RouterRules, Routing
from outrider.routing.affinity import Affinity
from outrider.routing.load_units import CoordinatorLoad


class Routes:
    """The routers of all ingresses. Coordinators are numbers.

    Each ingress knows only the prefixes that it sent itself. The number of responses under way is known to all at once:
    a simplification, as the product's ingresses learn of each other's newest requests only by replicas' reports.
    """

    def __init__(self, rules: RouterRules, capacity: int) -> None:
        """Begin without coordinators; each one added takes ``capacity`` responses."""
        self._rules = rules
        self._board = LoadBoard[int](capacity)
        hashing = rules.by is Routing.PREFIX
        self._known = [Affinity[int](rules.max_blocks, hashing=hashing) for _ in range(rules.ingresses)]
        self._tree = ServePrefixTree[int]() if rules.by is Routing.SERVE_LLM else None
        self._capacity = capacity
        self._turn = -1
        self.asks = rules.by in (Routing.PREFIX, Routing.KNOWN)  # whether load reports are used
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
        if self._tree is not None:
            self._tree.forget(coordinator)

    def send(self, digests: list[int], ingress: int) -> int | None:
        """Choose and record a coordinator for a request at ``ingress``; return None if none has a place."""
        known = self._known[ingress]
        chosen = self._chosen(digests, known)
        if chosen is not None:
            self._board.sent(chosen)
            known.note(digests, chosen)
            if self._tree is not None:
                self._tree.insert(digests, chosen)
        return chosen

    def _chosen(self, digests: list[int], known: Affinity[int]) -> int | None:
        by = self._rules.by
        if by is Routing.ROUND_ROBIN:
            return self._in_turn()
        if by is Routing.LEAST_LOADED or not self.up:
            return self._board.best({})
        if self._tree is not None:
            found = shortest(self._tree.candidates(digests, self.up), self._board.ongoing, self._capacity)
            return self._board.best({}) if found is None else found
        return self._board.best(known.tokens(digests, self.up))

    def report(self, coordinator: int, fullness: CoordinatorLoad) -> None:
        """Record the load that a coordinator reports."""
        self._board.report(coordinator, fullness)

    def ended(self, coordinator: int) -> None:
        """Record that a response at ``coordinator`` ended or was refused."""
        self._board.ended(coordinator)

    def _in_turn(self) -> int | None:
        if self._board.best({}) is None:
            return None
        for _ in self.up:
            self._turn = (self._turn + 1) % len(self.up)
            if self._board.has_room(self.up[self._turn]):
                return self.up[self._turn]
        return None
