"""Options of research commands, besides those of ``cluster.options``."""

import argparse
import os
from pathlib import Path

from cluster.option_types import new_file, new_folder, number

not_negative = number(0.0)


def add_output_options(parser: argparse.ArgumentParser, plots: str) -> None:
    """Add ``--json`` and ``--plots``; ``plots`` says what is drawn."""
    parser.add_argument("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    parser.add_argument("--plots", type=new_folder, default=None, metavar="FOLDER", help=plots)


def existing_file(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        found = f"{text}: {'a folder' if path.is_dir() else 'nothing there'}"
        raise argparse.ArgumentTypeError(f"needs a file that exists, found {found!r}")
    if not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f"needs a file that may be read, found {f'{text}: no permission'!r}")
    return path
