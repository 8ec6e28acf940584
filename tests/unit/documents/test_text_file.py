"""Files of operators: what is no regular file is refused at once, and no more is read than may be."""

import os
import socket
from pathlib import Path

import pytest

from lab.simulation.reading import load_scenario, load_simulation
from lab.training.tasks.loading import load_tasks
from outrider.config.reading import load_config
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.costs.profiles import read_profile
from outrider.documents.text_file import MAX_SETTINGS_BYTES, read_text
from outrider.link.trace import load_trace
from outrider.tenants.keys import read_keys

READERS = (load_config, read_profile, load_trace, load_simulation, load_scenario, read_keys, load_tasks)
NAMES = ("folder", "pipe", "pipe.json", "/dev/zero", "large", "latin", "absent", "loop", "socket")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    (tmp_path / "folder").mkdir()
    for pipe in ("pipe", "pipe.json"):
        os.mkfifo(tmp_path / pipe)
    (tmp_path / "latin").write_bytes(b"a: \xff")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_bytes(b"#" * (MAX_SETTINGS_BYTES + 1))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    return tmp_path


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_every_reader_refuses_what_is_no_text_file(folder: Path, read: object, name: str) -> None:
    if read is load_tasks and name.rpartition(".")[2] != "json":
        name = "pipe.json"  # other names are data sets
    with pytest.raises(ParameterError, match="found"):
        read(str(folder / name))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("folder", "a directory, not a regular file"),
        ("pipe", "a pipe, not a regular file"),
        ("/dev/zero", "a device, not a regular file"),
        ("large", "of at most 1,048,576 bytes"),
        ("latin", "not UTF-8"),
        ("absent", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
        ("a\0b", "null byte"),
        ("a" * 100_000, "File name too long"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_text(folder / name, "field", "YAML")


def test_a_file_of_the_greatest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"#" * MAX_SETTINGS_BYTES)
    assert len(read_text(file, "field", "YAML")) == MAX_SETTINGS_BYTES


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (load_trace, "time_s,up_bps,down_bps,rtt_s,per_up,per_down\n" + "1" * 200_000),
        (load_tasks, "[" * 100_000),
        (load_tasks, '{"prompt": ' + "9" * 5000 + "}"),
        (read_profile, "[" * 100_000),
        (read_profile, '{"name": ' + "9" * 5000 + "}"),
        (load_config, "model: " + "0x" + "f" * 90),
        (load_config, "0x" + "f" * 90 + ": 1"),
        (load_config, "2026-01-01: {1: 2}"),
        (load_scenario, "null: 3"),
    ],
)
def test_odd_content_is_a_typed_error(tmp_path: Path, read: object, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError):
        read(file if read is not load_tasks else str(file))  # type: ignore[operator]
