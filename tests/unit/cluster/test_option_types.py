import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.option_types import integer, natural, new_file, new_folder, number, positive, positive_int, share
from lab.options import existing_file, not_negative


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (natural, "0", 0),
        (positive_int, "1", 1),
        (integer(2, 4), "4", 4),
        (positive, "1e-9", 1e-9),
        (not_negative, "0", 0.0),
        (share, "1", 1.0),
        (number(0.5, 1.0), "0.5", 0.5),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_bounds_are_allowed(read: Callable[[str], float], text: str, value: float) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "needed"),
    [
        (natural, "-1", "an integer of at least 0"),
        (positive_int, "one", "an integer of at least 1"),
        (integer(2, 4), "5", "an integer in 2..4"),
        (positive, "0", "a number above 0"),
        (positive, "inf", "a number above 0"),
        (not_negative, "nan", "a number of at least 0"),
        (share, "1.5", r"a number in \[0, 1\]"),
        (number(0.0, 1.0, above=True), "0", r"a number in \(0, 1\]"),
        (existing_file, "missing", "a file that exists"),
        (existing_file, ".", "a file that exists"),
        (new_file, ".", "the name of a file"),
        (new_file, "file/in/it", "a place in a folder"),
        (new_folder, "file", "a place in a folder"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_error_names_what_is_needed_and_found(
    read: Callable[[str], object], text: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match=f"needs {needed}, found '{text}"):
        read(text)


def test_files_and_folders_are_read_and_not_made(tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.touch()
    assert existing_file(str(there)) == new_file(str(there)) == there
    later = tmp_path / "a" / "b"
    assert new_file(str(later)) == new_folder(str(later)) == later
    assert not later.parent.exists()
