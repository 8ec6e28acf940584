"""Tables of rows of one kind: each column has its heading and says how a row's cell is made."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cluster.reports.tables import show_table

Row = TypeVar("Row")
Columns = Sequence[tuple[str, Callable[[Row], object]]]


def show_columns(title: str, columns: Columns[Row], rows: Iterable[Row], note: str = "") -> None:
    show_table(title, [name for name, _ in columns], ([cell(row) for _, cell in columns] for row in rows), note)


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def decimals(number: float | None, digits: int, lacking: str = "-") -> str:
    """Return the number with so many digits; ``lacking`` where there is none."""
    return lacking if number is None else f"{number:.{digits}f}"


def percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"
