"""Types of command line options, for argparse: an error names what the option needs and what was found.

A value is checked before anything is loaded or started, so that a mistake costs no minutes.
"""

import argparse
import math
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the type of an integer in ``least..most``; None: without an upper bound."""
    needed = f"an integer of at least {least}" if most is None else f"an integer in {least}..{most}"
    return partial(_read, int, lambda value: least <= value and (most is None or value <= most), needed)


def number(least: float, most: float = math.inf, *, above: bool = False) -> Callable[[str], float]:
    """Return the type of a finite number in ``[least, most]``, or ``(least, most]`` if ``above``."""
    needed = f"a number {'above' if above else 'of at least'} {least:g}"
    if most < math.inf:
        needed = f"a number in {'(' if above else '['}{least:g}, {most:g}]"

    def fits(value: float) -> bool:
        return (least < value if above else least <= value) and value <= most and math.isfinite(value)

    return partial(_read, float, fits, needed)


def _read(kind: Callable[[str], _Number], fits: Callable[[_Number], bool], needed: str, text: str) -> _Number:
    with suppress(ValueError):
        if fits(value := kind(text)):
            return value
    raise _error(needed, text)


natural = integer(0)
positive_int = integer(1)
positive = number(0.0, above=True)
share = number(0.0, 1.0)


def new_file(text: str) -> Path:
    """A file to write; its folder is created when it is written."""
    path = Path(text).expanduser()
    if path.is_dir():
        raise _error("the name of a file", f"{text}: a folder")
    _check_folder(path.parent, text)
    return path


def new_folder(text: str) -> Path:
    """A folder to write to; it is created when something is written."""
    path = Path(text).expanduser()
    _check_folder(path, text)
    return path


def _check_folder(folder: Path, text: str) -> None:
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise _error("a place in a folder", f"{text}: {there} is a file")
    if not os.access(there, os.W_OK):
        raise _error("a folder that may be written to", f"{text}: no permission in {there}")


def _error(needed: str, found: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"needs {needed}, found {found!r}")
