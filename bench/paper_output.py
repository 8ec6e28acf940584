"""Tables, JSON and plots of the paper benches."""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.text_table import print_table

__all__ = ["COLOURS", "describe", "figure", "print_table", "save", "write_json"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: told apart by everyone


def write_json(file: Path, content: Mapping[str, object]) -> None:
    """Figures for other programs; dataclasses become objects."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, default=_plain) + "\n", encoding="utf-8")
    print(f"wrote {file}")


def figure(width_in: float, height_in: float) -> Figure:
    """An empty figure that keeps labels inside."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def describe(axes: Axes, title: str, x: str, y: str) -> None:
    """Title, axis labels and a light grid."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.3)


def save(drawn: Figure, file: Path) -> None:
    """Write a PNG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(file, dpi=150)
    print(f"wrote {file}")


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"needs a JSON value or a dataclass, found {type(value).__name__}")
