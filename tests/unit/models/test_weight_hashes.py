"""Damaged weights are told before they are served, wherever a hash of them was recorded."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.cli import main
from outrider.contracts.errors import ModelUnavailableError
from outrider.models.weight_hashes import check_hashes

OURS = {"format": 1, "source_sha256": "0" * 64}
WEIGHTS = bytes(range(256)) * 4096


def _sums(folder: Path, digest: str) -> None:
    (folder / "SHA256SUMS").write_text(f"{digest}  model.safetensors\n", encoding="utf-8")


def _manifest(folder: Path, digest: str) -> None:
    files = {"model.safetensors": {"size_bytes": len(WEIGHTS), "sha256": digest}}
    (folder / "manifest.json").write_text(json.dumps({**OURS, "files": files}), encoding="utf-8")


@pytest.fixture(params=[_sums, _manifest], ids=["sums", "manifest"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    record: Callable[[Path, str], None] = request.param
    record(tmp_path, hashlib.sha256(WEIGHTS).hexdigest())
    return tmp_path


def _zeros(file: Path) -> None:
    file.write_bytes(WEIGHTS[: 2**19] + bytes(2**10) + WEIGHTS[2**19 + 2**10 :])


@pytest.mark.parametrize("damage", [_zeros, Path.unlink, lambda file: file.write_bytes(WEIGHTS[:-1])])
def test_damage_is_told_with_the_files_name(
    folder: Path, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_hashes(folder) == 1
    assert main(["models", "check", str(folder)]) == 0
    damage(folder / "model.safetensors")
    with pytest.raises(ModelUnavailableError, match=r"model\.safetensors with sha256 .* the file is damaged"):
        check_hashes(folder)
    assert main(["models", "check", str(folder)]) == 2
    assert "the file is damaged" in capsys.readouterr().err


DAMAGED = {
    "cut": json.dumps({**OURS, "files": {}})[:-2],
    "nested": json.dumps(OURS)[:-1] + ', "files": ' + "[" * 100_000,
    "no files": json.dumps(OURS),
    "a number": json.dumps({**OURS, "files": 3}),
    "elsewhere": json.dumps({**OURS, "files": {"../x": {"sha256": "a"}}}),
    "no hash": json.dumps({**OURS, "files": {"x": {}}}),
    "of a later version": json.dumps({**OURS, "format": 2, "files": {}}),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_record_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelUnavailableError):
        check_hashes(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "3", "[", "[" * 100_000, '{"files": 3}', '{"format": "1", "name": "a web page"}', "\xff"]
)
def test_a_manifest_of_somebody_elses_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    assert check_hashes(tmp_path) == 0
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    _sums(tmp_path, "0" * 64)
    with pytest.raises(ModelUnavailableError, match="the file is damaged"):
        check_hashes(tmp_path)


@pytest.mark.parametrize("options", [(), ("-b",), ("-t",)])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_sums_are_taken_as_sha256sum_writes_them(tmp_path: Path, prefix: str, options: tuple[str, ...]) -> None:
    names = ["model.safetensors", "two words.safetensors"]
    for name in names:
        (tmp_path / name).write_bytes(WEIGHTS)
    command = ["sha256sum", *options, "--", *(prefix + name for name in names)]
    sums = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    (tmp_path / "SHA256SUMS").write_bytes(sums)
    assert check_hashes(tmp_path) == 2


@pytest.mark.parametrize("name", ["a\\b.safetensors", "a\nb.safetensors"])
def test_names_that_sha256sum_escapes_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WEIGHTS)
    command = ["sha256sum", name]
    sums = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    (tmp_path / "SHA256SUMS").write_bytes(sums)
    with pytest.raises(ModelUnavailableError, match=r"an escaped file name .* rename the file"):
        check_hashes(tmp_path)


def test_without_a_record_the_command_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_hashes(tmp_path) == 0
    assert main(["models", "check", str(tmp_path)]) == 2
    assert "sha256sum" in capsys.readouterr().err
