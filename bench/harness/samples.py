"""What arms gave in the cells of a measurement, and its medians over repeats. No I/O, no clock."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

CellT = TypeVar("CellT", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over repeats, the smallest and the largest value."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """``41.2 [40.8-44.0]``."""
        return f"{self.median:.1f} [{self.low:.1f}-{self.high:.1f}]"


@dataclass(frozen=True, slots=True)
class Sample(Generic[CellT]):
    """What one arm gave in one cell, once.

    Attributes:
        cell: what was asked of all arms alike.
        values: by name; those that could not be measured are missing.
        failure: what went wrong, if anything did.
    """

    cell: CellT
    arm: str
    values: Mapping[str, float]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Figures(Generic[CellT]):
    """One arm in one cell, over repeats; ``failure`` is the first one."""

    cell: CellT
    arm: str
    values: Mapping[str, Spread]
    failure: str


def rotated(items: Sequence[_T], repeat: int) -> list[_T]:
    """Another one first in every repeat, so that what drifts meanwhile does not always meet the same one."""
    first = repeat % len(items) if items else 0
    return [*items[first:], *items[:first]]


def figures(samples: Iterable[Sample[CellT]]) -> list[Figures[CellT]]:
    """By cell and arm, in the order met first."""
    return [_figures(cell, arm, group) for (cell, arm), group in _grouped(samples).items()]


def ratios(samples: Iterable[Sample[CellT]], name: str, base: str) -> dict[tuple[CellT, str], float]:
    """Median over repeats of each arm's value over that of the arm ``base`` in the same repeat and cell.

    Args:
        samples: those of one cell and arm in the order of the repeats.
        name: of the value.
        base: to divide by; cells without it are left out, and so is it itself.
    """
    groups, found = _grouped(samples), {}
    for (cell, arm), group in groups.items():
        pairs = zip(group, groups.get((cell, base), ()), strict=False)
        over = [one.values[name] / below.values[name] for one, below in pairs if name in one.values and below.values]
        if arm != base and over:
            found[cell, arm] = median(over)
    return found


def _grouped(samples: Iterable[Sample[CellT]]) -> dict[tuple[CellT, str], list[Sample[CellT]]]:
    groups: dict[tuple[CellT, str], list[Sample[CellT]]] = {}
    for sample in samples:
        groups.setdefault((sample.cell, sample.arm), []).append(sample)
    return groups


def _figures(cell: CellT, arm: str, group: Sequence[Sample[CellT]]) -> Figures[CellT]:
    names = dict.fromkeys(name for one in group for name in one.values)
    values = {name: [one.values[name] for one in group if name in one.values] for name in names}
    return Figures(
        cell,
        arm,
        {name: Spread(median(found), min(found), max(found)) for name, found in values.items()},
        next((one.failure for one in group if one.failure), ""),
    )
