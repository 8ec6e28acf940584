"""Reference of the command line: ``--help`` of every command, as it prints it."""

import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from unittest.mock import patch

from cluster.cli import main

_HEAD = """# Command line

What `--help` of each command prints. `simulate`, `plan`, `train`, `reproduce` and `bench` need a source checkout.
"""
_COMMANDS = re.compile(r"^  [A-Z]+\n((?: {4,}\S.*\n)+)", re.MULTILINE)  # a list of commands, in a help text


def cli_page() -> str:
    parts = [_HEAD]
    for command, text in helps():
        parts.append(
            f"{'#' * min(2 + len(command) // 2, 3)} `{' '.join(('outrider', *command))}`\n\n```text\n{text}```\n"
        )
    return "\n".join(parts)


def helps(command: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each command, and all commands within it, with its help text."""
    text = _help(command)
    yield command, text
    if listed := _COMMANDS.search(text):
        for name in re.findall(r"^ {4}([a-z][\w-]*)(?: |$)", listed[1], re.MULTILINE):
            yield from helps((*command, name))


def _help(command: tuple[str, ...]) -> str:
    """What ``--help`` prints, at the same width on every machine and without its environment."""
    printed = StringIO()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")} | {"COLUMNS": "88"}
    with patch.dict(os.environ, clean, clear=True), redirect_stdout(printed), suppress(SystemExit):
        main([*command, "--help"])
    return printed.getvalue()
