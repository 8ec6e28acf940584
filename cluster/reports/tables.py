"""Terminal tables."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDEST = 240


def show_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> None:
    """Print a table: first column left-aligned, the others right-aligned; ``note`` follows below."""
    table = Table(box=SIMPLE_HEAD, title=Text(title), title_justify="left", title_style="bold", pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(highlight=False, width=_WIDEST, soft_wrap=True)
    console.print(table)
    if note:
        console.print(note + "\n", markup=False)
