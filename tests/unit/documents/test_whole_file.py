"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from outrider.documents.whole_file import FileNotWrittenError, whole_file, write_whole


def test_what_a_killed_process_left_behind_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left, others, under_way = (tmp_path / f".{name}.partial" for name in ("a.json.7", "b.json.7", "a.json.8"))
    for file in (left, others, under_way):
        file.write_text("{")
    for file in (left, others):
        os.utime(file, (0, 0))
    write_whole(tmp_path / "a.json", "{}")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a.json", others, under_way])


def test_an_earlier_file_stays_where_writing_fails(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_whole(file, "1")
    with pytest.raises(FileNotWrittenError, match="needs space and permission"), whole_file(file) as partial:
        (partial / "2").write_text("no folder")
    assert (file.read_text(), list(tmp_path.iterdir())) == ("1", [file])
