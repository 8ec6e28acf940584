"""docs/design: each note has a title in the field's own terms, and the index has each note once."""

import re
from pathlib import Path

import pytest

DESIGN = Path(__file__).parents[2] / "docs" / "design"
NOTES = sorted(DESIGN.glob("[0-9]*.md"))
INDEX = (DESIGN / "README.md").read_text(encoding="utf-8")
OURS = (  # words that say nothing to who does not know the code, or something else
    "regime|arm|scout|pace|stretch|leave|leaves|home|drained|lane|site|member|suspect|standing|worth|credit|owed|told|teller|"
    "door|shelf|looking|looked-up|light|blame|company|judged|room"
)


def title(note: Path) -> str:
    """Of its first line, behind its number."""
    first = note.read_text(encoding="utf-8").partition("\n")[0]
    found = re.fullmatch(rf"# {note.name[:4]}: (\S.*\S)", first)
    assert found, first
    return found[1]


def test_there_are_notes_and_no_number_twice() -> None:
    numbers = [note.name[:4] for note in NOTES]
    assert len(set(numbers)) == len(numbers) > 70


@pytest.mark.parametrize("note", NOTES, ids=[note.stem for note in NOTES])
def test_file_and_heading_are_of_one_number(note: Path) -> None:
    assert re.fullmatch(r"\d{4}(-[a-z0-9]+){1,8}\.md", note.name)
    assert len(title(note)) <= 70
    assert not title(note)[0].islower()


@pytest.mark.parametrize("note", NOTES, ids=[note.stem for note in NOTES])
def test_a_title_has_no_words_of_our_own(note: Path) -> None:
    assert re.findall(rf"\b(?:{OURS})s?\b", title(note), re.IGNORECASE) == []


def test_the_index_links_each_note_once_by_its_title() -> None:
    listed = re.findall(r"^- \[(\d{4}): (.+)\]\((\S+)\) - \S.{0,99}$", INDEX, re.MULTILINE)
    assert sorted(listed) == [(note.name[:4], title(note), note.name) for note in NOTES]
    assert len(re.findall(r"\]\(\d{4}", INDEX)) == len(NOTES)


def test_the_index_says_which_notes_are_superseded_and_by_what() -> None:
    said = dict(re.findall(r"^- \[(\d{4}): .* Superseded by (\d{4})\.$", INDEX, re.MULTILINE))
    texts = {note.name[:4]: note.read_text(encoding="utf-8") for note in NOTES}
    found = {number: re.search(r"^\*Superseded by \[(\d{4})\]", text, re.MULTILINE) for number, text in texts.items()}
    assert said == {number: match[1] for number, match in found.items() if match}


def test_links_between_notes_lead_to_notes() -> None:
    for file in (*NOTES, DESIGN / "README.md"):
        for to in re.findall(r"\]\(([^)\s#:]+)(?:#\S*)?\)", file.read_text(encoding="utf-8")):
            assert (DESIGN / to).exists(), f"{file.name}: {to}"
