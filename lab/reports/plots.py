"""Common parts of all plots."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outrider.documents.whole_file import whole_file

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: colour-blind safe


def figure(width_in: float, height_in: float) -> Figure:
    return Figure(figsize=(width_in, height_in), layout="constrained")


def describe(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.3)


def save(drawn: Figure, file: Path) -> None:
    with whole_file(file) as partial:
        drawn.savefig(partial, dpi=150, format="png")
    print(f"wrote {file}")
