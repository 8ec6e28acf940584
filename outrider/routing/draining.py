"""Whose responses are to go on elsewhere, by what a router is told of coordinators.

One that is drained is left out of what is told; so is, for a moment, one that takes other settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from outrider.routing.load_units import CoordinatorLoad

_ROOM = 0.9  # of what one allows: who is fuller takes nothing over
_REMEMBERED_S = 3600.0  # longer than any response


@dataclass(frozen=True, slots=True)
class RoutedCoordinator:
    """What a coordinator tells of itself.

    Attributes:
        target: of its verifier; "" is not known (yet).
        up: whether its verifier answers.
        fullness: of what it allows.
    """

    target: str
    up: bool
    fullness: CoordinatorLoad


class DrainWatch:
    """As one router knows them; it tells, whoever hears responses asks."""

    def __init__(self) -> None:
        self._there: Mapping[str, RoutedCoordinator] = {}
        self._left: Mapping[str, tuple[float, str]] = {}  # since when, and with which target
        self._leaving = 0  # since it was told last

    def update(self, there: Mapping[str, RoutedCoordinator], now_s: float) -> None:
        """These are all that are given anything, at a time on a monotonic clock."""
        left = {name: (now_s, place.target) for name, place in self._there.items()} | dict(self._left)
        self._left = {
            name: since for name, since in left.items() if name not in there and now_s - since[0] < _REMEMBERED_S
        }
        known = {name: place.target for name, place in self._there.items()}  # one that was not asked yet says nothing
        self._there = {name: replace(one, target=one.target or known.get(name, "")) for name, one in there.items()}
        self._leaving = 0

    def died(self, name: str) -> None:
        """One is gone, and takes nothing over."""
        self._there = {other: place for other, place in self._there.items() if other != name}

    def should_migrate(self, coordinator: str, after_s: float, now_s: float) -> bool:
        """Whether a response leaves one, as it has been drained for so long and another of its target has room.

        Those that leave before it is told how full others are meanwhile count as if they all went to the same one.
        """
        since_s, target = self._left.get(coordinator, (now_s, ""))
        if coordinator not in self._left or now_s - since_s < after_s:
            return False
        should_migrate = any(one.up and one.target == target and self._has_room(one) for one in self._there.values())
        self._leaving += should_migrate
        return should_migrate

    def _has_room(self, place: RoutedCoordinator) -> bool:
        said = place.fullness
        each = said.share / said.responses if said.responses else 0.0
        return said.share + self._leaving * each < _ROOM
