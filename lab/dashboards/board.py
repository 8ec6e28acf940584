"""What a dashboard is made of: boards of rows of panels of queries."""

from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How a panel shows its queries."""

    LINES = "lines"  # over time
    STACK = "stack"  # likewise, one on the other
    NUMBER = "number"  # the last value
    HEAT = "heat"  # a histogram's buckets over time


class Variable(StrEnum):
    """What a reader may narrow a board to; the value is the name in expressions."""

    CLUSTER = "cluster"
    COORDINATOR = "coordinator"
    CLASS = "class"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and how its series are called: ``{{label}}`` is a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        unit: Grafana's name of it.
        text: what is seen, and what to make of it.
        warn: from here on yellow; above ``alarm`` it means that less is worse. None: no colours.
        alarm: from here on red.
        width: of the board's 24.
        to: the board that tells more.
    """

    title: str
    queries: tuple[Query, ...]
    unit: str
    text: str
    shape: Shape = Shape.LINES
    warn: float | None = None
    alarm: float | None = None
    width: int = 8
    to: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; its address in Grafana is ``/d/outrider-{name}``."""

    name: str
    title: str
    text: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)
