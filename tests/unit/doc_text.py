"""What tests of the documentation read out of a page: headings, their anchors, and commands."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from cluster.cli import main


def headings(file: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def words_without_help(command: str) -> list[str]:
    """The words of a command and the names of its options that its own ``--help`` does not print.

    A word in capitals stands for the reader's own.
    """
    words = command.split()[1:]
    first_option = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    printed = StringIO()
    wide = {"COLUMNS": "1000"}  # so that no name is broken
    with patch.dict("os.environ", wide), redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main([*words[:first_option], "--help"])
    assert ended.value.code == 0
    known = set(re.findall(r"[\w-]+", printed.getvalue()))
    return [word for word in words if not word.isupper() and word not in known]
