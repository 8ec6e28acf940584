"""Where requests are sent: the product's router before many coordinators, several ingresses of it if need be."""

from outrider.routing.board import LoadBoard
from outrider.routing.prefix_index import BLOCK_TOKENS, PrefixIndex
from outrider.simulation.fleet.scenario import RouterRules, Routing


class Routes:
    """Coordinators are numbers. What was sent where each ingress knows of itself, what is under way all know alike.

    The product's ingresses count what they sent themselves, and replicas tell how much is under way there: between two
    answers of a replica the others' newest requests are not known, here they are.
    """

    def __init__(self, rules: RouterRules, capacity: int) -> None:
        """No coordinators; each takes so many responses."""
        self._rules = rules
        self._board = LoadBoard[int](capacity)
        self._indexes = [PrefixIndex[int](rules.max_blocks) for _ in range(rules.ingresses)]
        self._turn = -1
        self._up: list[int] = []

    def add(self, coordinator: int) -> None:
        """One more."""
        self._board.add(coordinator)
        self._up = sorted((*self._up, coordinator))

    def drop(self, coordinator: int) -> None:
        """It is gone, and what it had computed."""
        self._board.drop(coordinator)
        self._up.remove(coordinator)
        for index in self._indexes:
            index.forget(coordinator)

    def send(self, digests: list[int], ingress: int) -> int | None:
        """Choose for a request that came to an ingress, and remember it; None if all are full, or there is none."""
        index = self._indexes[ingress]
        if self._rules.by is Routing.ROUND_ROBIN:
            chosen = self._in_turn()
        else:
            matches = index.matches(digests)
            chosen = self._board.best({name: blocks * BLOCK_TOKENS for name, blocks in matches.items()})
        if chosen is not None:
            self._board.sent(chosen)
            index.insert(digests, chosen)
        return chosen

    def ended(self, coordinator: int) -> None:
        """A response is over there, or was refused."""
        self._board.ended(coordinator)

    def _in_turn(self) -> int | None:
        if self._board.best({}) is None:
            return None
        for _ in self._up:
            self._turn = (self._turn + 1) % len(self._up)
            if self._board.has_room(self._up[self._turn]):
                return self._up[self._turn]
        return None
