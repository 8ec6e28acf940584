"""Documentation: the README is short, what a page says exists, and tutorials that need no service do as they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIFE = (ROOT / "docs" / "explanation" / "life-of-a-request.md").read_text(encoding="utf-8")
FENCED = re.DOTALL | re.MULTILINE
TUTORIALS = ROOT / "docs" / "tutorials"
PICTURE = (ROOT / "docs" / "figures" / "life-of-a-request.svg").read_text(encoding="utf-8")


def test_the_readme_can_be_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?)`", LIFE))))
def test_every_file_of_the_life_of_a_request_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_picture_has_the_pages_steps() -> None:
    steps = re.findall(r"^(\d+)\. \*\*", LIFE, re.MULTILINE)
    assert steps == [str(number) for number in range(1, 15)]
    assert list(dict.fromkeys(re.findall(r">(\d+)  ", PICTURE))) == steps
    assert len(LIFE.splitlines()) <= 60


def blocks(page: str, language: str) -> list[str]:
    """Code blocks of one language of a tutorial."""
    text = (TUTORIALS / page).read_text(encoding="utf-8")
    return [block for found, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, FENCED) if found == language]


def test_the_tutorials_protocol_prints_what_the_page_shows() -> None:
    """All its blocks, in order, as one file: written, registered, proved exact, and drafted with."""
    source = "".join(blocks("write-a-protocol.md", "python"))
    done = subprocess.run(
        [sys.executable, "-"], input=source, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(blocks("write-a-protocol.md", ""))


def test_what_others_made_or_we_derived_from_theirs_is_told_with_its_licence() -> None:
    """Weights, and minified files: what nobody here has written by hand."""
    rows = [row for row in (ROOT / "THIRD_PARTY.md").read_text().splitlines() if row.startswith("| ")][2:]
    assert all(row.split("|")[4].strip() for row in rows), "each with its licence"
    packages = [ROOT / name for name in ("outrider", "actors", "serve_app", "cluster", "edge", "lab")]
    found = [path.relative_to(ROOT) for package in packages for path in package.rglob("*")]
    theirs = [path for path in found if path.suffix == ".safetensors" or ".min" in path.suffixes]
    assert {path.suffix for path in theirs} == {".safetensors", ".js", ".css"}
    for path in theirs:
        assert any(f"`{path.parent}/`" in row for row in rows), f"{path}: from where, by whom?"
