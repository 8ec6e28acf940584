"""Route requests to coordinators by the product's router, from one ingress or several."""

from lab.simulation.fleet.board import LoadBoard
from lab.simulation.fleet.scenario import RouterRules
from outrider.routing.affinity import Affinity
from outrider.routing.load_units import CoordinatorLoad


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
