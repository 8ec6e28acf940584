"""docs/papers.md: it has every numbered item of the papers, and what it points at exists."""

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.unit.doc_text import anchor, headings, words_without_help

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "papers.md"
TEXT = DOC.read_text(encoding="utf-8")
SPANS = tuple(dict.fromkeys(re.findall(r"`([^`\n]+)`", TEXT)))
PATHS = [span for span in SPANS if re.search(r"^[\w.-]+/\S+$|\.(py|yaml|json|md|png)$", span)]
COMMANDS = [span for span in SPANS if span.startswith("outrider ")]
NUMBERED = {
    "WISP": {"Algorithm": ["1"], "Table": [str(n) for n in range(1, 13)], "Figure": [str(n) for n in range(1, 12)]},
    "WISV": {"Algorithm": ["1"], "Table": ["I"], "Figure": [str(n) for n in range(1, 8)]},
    "TSLT": {"Algorithm": [str(n) for n in range(1, 9)], "Table": ["1"], "Figure": [str(n) for n in range(1, 7)]},
    "DSSD": {"Algorithm": ["1", "2"], "Table": ["1", "2", "3"], "Figure": ["1", "2"]},
}


def rows(paper: str) -> list[list[str]]:
    """Cells of its table, without the head."""
    (section,) = re.findall(rf"^## {paper}\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]
    ]


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_has_a_row(paper: str) -> None:
    found = rows(paper)
    assert {len(row) for row in found} == {5}
    for kind, numbers in NUMBERED[paper].items():
        named = [re.match(rf"{kind}s? ([\dI]+(?:, [\dI]+)*)", row[0]) for row in found]
        listed = chain.from_iterable(match[1].split(", ") for match in named if match)
        assert list(dict.fromkeys(listed)) == numbers


@pytest.mark.parametrize("path", PATHS)
def test_every_file_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_named_exists(command: str) -> None:
    assert words_without_help(command) == []


def test_every_link_leads_somewhere() -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", TEXT)
    assert targets
    for target in targets:
        file, _, fragment = target.partition("#")
        to = DOC.parent / file if file else DOC
        assert to.exists(), target
        assert not fragment or fragment in map(anchor, headings(to)), target


def test_every_section_named_is_a_heading_of_the_archive() -> None:
    """References and their definitions are the same set."""
    defined = dict(re.findall(r'^\[([^\]]+)\]: (archive/\S+ ".+")$', TEXT, re.MULTILINE))
    known = {
        f'archive/{file.name}#{anchor(heading)} "{heading}"'
        for file in (DOC.parent / "archive").glob("*.md")
        for heading in headings(file)
    }
    assert set(defined.values()) <= known
    assert set(re.findall(r"\[([^\]]+)\](?![(:])", TEXT)) == set(defined)


def test_every_erratum_cited_is_listed() -> None:
    listed = re.findall(r"^(\d+)\. ", TEXT, re.MULTILINE)
    assert listed == [str(n) for n in range(1, 15)]
    cited = re.findall(r"\berrat(?:um|a) (\d+(?:, \d+)*)", TEXT)
    assert {number for some in cited for number in some.split(", ")} <= set(listed)
