"""Samples of arms at several numbers of clients, and medians over repeats. No I/O, no clock."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over repeats, with minimum and maximum."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """``41.2 [40.8-44.0]``."""
        return self.shown(1)

    def shown(self, digits: int) -> str:
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}-{self.high:.{digits}f}]"


def spread_of(values: Collection[float]) -> Spread:
    """Of at least one value."""
    return Spread(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Sample:
    clients: int
    arm: str
    values: Mapping[str, float]  # by name; values that could not be measured are missing
    failure: str = ""  # the failure, if any
    turn: int = 0  # of the round in which all arms are measured once


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm at one number of clients, over repeats; ``failure`` is the first one."""

    clients: int
    arm: str
    values: Mapping[str, Spread]
    failure: str


def rotated(items: Sequence[_T], repeat: int) -> list[_T]:
    """Rotate the order in every repeat, so that drifts do not always affect the same item."""
    first = repeat % len(items) if items else 0
    return [*items[first:], *items[:first]]


def figures(samples: Iterable[Sample]) -> list[ArmFigures]:
    """By clients and arm, in order of first appearance."""
    groups: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.clients, sample.arm), []).append(sample)
    found = []
    for (clients, arm), group in groups.items():
        values: dict[str, list[float]] = {}
        for name, value in (pair for one in group for pair in one.values.items()):
            values.setdefault(name, []).append(value)
        spreads = {name: spread_of(some) for name, some in values.items()}
        found.append(ArmFigures(clients, arm, spreads, next((one.failure for one in group if one.failure), "")))
    return found
