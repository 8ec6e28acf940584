"""Decide which responses migrate, from the coordinators that a router is given.

A draining coordinator is missing from that list. So is, for a moment, one that takes other settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from outrider.routing.load_units import CoordinatorLoad

_ROOM = 0.9  # share of what a coordinator allows, above which it takes over no response
_REMEMBERED_S = 3600.0  # longer than any response


@dataclass(frozen=True, slots=True)
class RoutedCoordinator:
    target: str  # of its verifier; "" if not known (yet)
    up: bool  # whether its verifier answers
    fullness: CoordinatorLoad  # share of what it allows


class DrainWatch:
    """Coordinators as one router knows them. The router updates; whoever streams responses asks."""

    def __init__(self) -> None:
        self._there: Mapping[str, RoutedCoordinator] = {}
        self._left: Mapping[str, tuple[float, str]] = {}  # since when, with its target
        self._leaving = 0  # responses that migrate since the last update

    def update(self, there: Mapping[str, RoutedCoordinator], now_s: float) -> None:
        """Set the coordinators that may be given responses, at ``now_s`` of a monotonic clock."""
        left = {name: (now_s, place.target) for name, place in self._there.items()} | dict(self._left)
        self._left = {
            name: since for name, since in left.items() if name not in there and now_s - since[0] < _REMEMBERED_S
        }
        # a coordinator that was not asked yet keeps its last known target
        known = {name: place.target for name, place in self._there.items()}
        self._there = {name: replace(one, target=one.target or known.get(name, "")) for name, one in there.items()}
        self._leaving = 0

    def died(self, name: str) -> None:
        self._there = {other: place for other, place in self._there.items() if other != name}

    def should_migrate(self, coordinator: str, after_s: float, now_s: float) -> bool:
        """Return whether a response leaves: its coordinator has been draining long enough, and another can take it.

        Responses that leave between two updates count as if all went to the same coordinator.
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
