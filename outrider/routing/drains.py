"""Whose responses are to go on elsewhere, by what a router is told of coordinators.

One that is drained is left out of what is told; so is, for a moment, one that takes other settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_ROOM = 0.9  # of what one allows: who is fuller takes nothing over
_REMEMBERED_S = 3600.0  # longer than any response


@dataclass(frozen=True, slots=True)
class Place:
    """What a coordinator tells: its target, whether its verifier answers, and the share taken of what it allows."""

    target: str
    up: bool
    taken: float


class Drains:
    """As one router knows them; it tells, whoever hears responses asks."""

    def __init__(self) -> None:
        """Nobody is known."""
        self._there: Mapping[str, Place] = {}
        self._left: Mapping[str, tuple[float, str]] = {}  # since when, and with which target

    def told(self, there: Mapping[str, Place], now_s: float) -> None:
        """These are all that are given anything, at a time on a monotonic clock."""
        left = {name: (now_s, place.target) for name, place in self._there.items()} | dict(self._left)
        self._left = {
            name: since for name, since in left.items() if name not in there and now_s - since[0] < _REMEMBERED_S
        }
        self._there = dict(there)

    def may_leave(self, coordinator: str, after_s: float, now_s: float) -> bool:
        """Whether one has been drained for so long, and another of its target has room."""
        since_s, target = self._left.get(coordinator, (now_s, ""))
        return (
            coordinator in self._left
            and now_s - since_s >= after_s
            and any(place.up and place.target == target and place.taken < _ROOM for place in self._there.values())
        )
