"""Tables and worker processes of the simulator's commands."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

_WIDEST = 160

Work = TypeVar("Work")
Result = TypeVar("Result")


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Columns as wide as they need to be, figures to the right of the first one; ``note`` follows below."""
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console(highlight=False, width=_WIDEST, soft_wrap=True)
    console.print(table)
    if note:
        console.print(note + "\n")


def percent(share: float) -> str:
    """A share, as tables show it."""
    return f"{100.0 * share:.1f} %"


def spread(function: Callable[[Work], Result], work: Sequence[Work], workers: int, label: str) -> Iterator[Result]:
    """Results in the order of the work, under a progress bar; several workers are processes of their own."""
    if workers == 1:
        yield from map(function, tqdm(work, desc=label, disable=None))
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from tqdm(pool.map(function, work), desc=label, total=len(work), disable=None)
