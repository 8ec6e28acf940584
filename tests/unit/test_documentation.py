"""Documentation: the README is short; the files of the life of a request exist, and its picture has its steps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIFE = (ROOT / "docs" / "explanation" / "life-of-a-request.md").read_text(encoding="utf-8")
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
