"""docs/results.md: each figure has its command, machine, date and commit, and a section of the archive."""

import re
from pathlib import Path

import pytest

from tests.unit.doc_text import anchor, headings, words_without_help

DOC = Path(__file__).parents[2] / "docs" / "results.md"
TEXT = DOC.read_text(encoding="utf-8")
LONGEST = 400  # lines: what takes more is history
ROWS = [line.strip("|").split(" | ") for line in re.findall(r"^\| (?:\[|`).*\|$", TEXT, re.MULTILINE)]
COMMANDS = [
    command for row in ROWS if "command gone" not in row[2] for command in re.findall(r"`(outrider [^`]+)`", row[2])
]


def subcommand(command: str) -> str:
    """The command up to its first option, with the names of its options but not their values."""
    words = command.split()
    first_option = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    return " ".join([*words[:first_option], *(word for word in words[first_option:] if word.startswith("--"))])


def test_it_is_a_table_and_not_a_notebook() -> None:
    assert len(TEXT.splitlines()) <= LONGEST
    assert len(ROWS) > 100


def test_every_row_has_date_and_commit() -> None:
    assert {len(row) for row in ROWS} == {5}
    assert [row for row in ROWS if not re.fullmatch(r"\d{4}-\d\d-\d\d, `[0-9a-f]{8}` ", row[4])] == []


def test_every_row_leads_to_a_section_of_the_archive() -> None:
    defined = dict(re.findall(r"^\[(\w+)\]: (archive/\S+)$", TEXT, re.MULTILINE))
    sections = {
        f"archive/{file.name}#{anchor(heading)}"
        for file in (DOC.parent / "archive").glob("*.md")
        for heading in headings(file)
    }
    assert set(defined.values()) <= sections
    assert set(re.findall(r"\]\[(\w+)\]", TEXT)) == set(defined)
    assert [row for row in ROWS if not re.search(r"\]\[\w+\]", row[0])] == []


@pytest.mark.parametrize("command", sorted({subcommand(command) for command in COMMANDS}))
def test_every_command_exists_that_is_not_marked_as_gone(command: str) -> None:
    assert words_without_help(command) == []
