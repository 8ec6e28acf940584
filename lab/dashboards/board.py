"""Data types of a dashboard: a board has rows, a row has panels, a panel has queries."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Shape(StrEnum):
    LINES = "lines"  # over time
    STACK = "stack"  # likewise, stacked
    NUMBER = "number"  # the last value
    HEAT = "heat"  # a histogram's buckets over time
    TABLE = "table"  # the last values, a query for each column: its legend is the column's title


class Variable(StrEnum):
    """Filters that a viewer may set on a board; the value is the name in expressions."""

    CLUSTER = "cluster"
    COORDINATOR = "coordinator"
    CLASS = "class"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and the legend of its series, where ``{{label}}`` is a label's value."""

    expr: str
    legend: str = ""
    unit: str = ""  # of its column in a table


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str  # Grafana's name of it
    shape: Shape = Shape.LINES
    warn: float | None = None  # yellow from here on; if above ``alarm``, lower values are worse. None: no colours
    alarm: float | None = None  # red from here on
    width: int = 8  # of the board's 24 columns
    rows_by: str = ""  # label of a table's rows
    to: str | None = None  # the board with more detail
    text: str = ""  # what the panel shows, and what to conclude from it
    queries: tuple[Query, ...] = ()

    def showing(self, text: str, *queries: Query | str) -> "Panel":
        """Return the panel with its text and queries; an expression alone has no legend."""
        asked = tuple(Query(one) if isinstance(one, str) else one for one in queries)
        return replace(self, text=text, queries=asked)


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def row(title: str, *panels: Panel) -> Row:
    return Row(title, panels)


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
