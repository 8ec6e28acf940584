"""Keys are read on whatever happens to the file: an odd one changes nothing, and the next sound one is taken."""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from outrider.contracts.errors import ConfigError
from serve_app.api.service import AuthSettings
from serve_app.ingress.keys_in_use import KeysInUse

KEY = "sk-alice-0123456789"
STOLEN = "sk-mallory-0123456789"


def sound(*names: str) -> bytes:
    rows = (f"  - {{name: {name}, key: sk-{name}-0123456789, concurrent_responses: 8}}\n" for name in names)
    return b"keys:\n" + "".join(rows).encode()


def replace(content: bytes) -> Callable[[Path], None]:
    return lambda file: (file.with_suffix(".new").write_bytes(content), file.with_suffix(".new").rename(file))[1]  # type: ignore[return-value]


def _in_place_of(file: Path, make: Callable[[Path], None]) -> None:
    file.unlink()
    make(file)


ODD: dict[str, Callable[[Path], None]] = {
    "impossible date": replace(b"keys: [{name: 2026-13-45, key: x}]"),
    "no number": replace(b"keys: [{name: alice, max_choices: 0x_}]"),
    "deep": replace(b"[" * 5000),
    "laughs": replace(b"a: &a [x, x]\n" + b"".join(b"b: &a [*a, *a]\n".replace(b"b", b"b%d" % n) for n in range(40))),
    "inside itself": replace(b"keys: &a [*a]"),
    "huge": replace(b"#" * 2_000_000),
    "large number": replace(b"keys: [{name: alice, max_choices: 0x" + b"f" * 99 + b"}]"),
    "not UTF-8": replace(b"\xff"),
    "empty": replace(b""),
    "another class": replace(b"keys: [{name: alice, key: sk-alice-0123456789, slo: {default: none_such}}]"),
    "half a line": replace(sound("alice")[:-40]),
    "gone": Path.unlink,
    "folder": lambda file: _in_place_of(file, Path.mkdir),
    "pipe": lambda file: _in_place_of(file, os.mkfifo),
    "dangling link": lambda file: _in_place_of(file, lambda path: path.symlink_to("nowhere")),
    "device": lambda file: _in_place_of(file, lambda path: path.symlink_to("/dev/zero")),
}


def _clear(file: Path) -> None:
    file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (files have no event)
        await asyncio.sleep(0.001)


def run(test: Callable[[KeysInUse, Path], Coroutine[Any, Any, None]], file: Path) -> None:
    async def bounded() -> None:
        keys = KeysInUse(AuthSettings(str(file), ("best_effort",), (), 0.01), settle_s=0.01)
        reading = asyncio.create_task(keys.reload_for_ever())
        async with asyncio.timeout(120):
            await test(keys, file)
        assert not reading.done()
        reading.cancel()

    asyncio.run(bounded())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_bytes(sound("alice", "mallory"))
    return path


def test_after_each_odd_file_a_sound_one_is_taken(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test(keys: KeysInUse, file: Path) -> None:
        for name, spoil in ODD.items():
            told = caplog.text.count("keys_not_read")
            spoil(file)
            await until(lambda: keys.refused)
            assert keys.keys.tenant_of(KEY) is not None, name
            assert keys.keys.tenant_of(STOLEN) is not None, name
            age_s = keys.age_s
            await asyncio.sleep(0.05)
            assert keys.age_s > age_s, "the keys in use were not found in it"
            assert caplog.text.count("keys_not_read") == told + 1, f"{name}: said once"
            _clear(file)
            replace(sound("alice"))(file)
            await until(lambda: keys.keys.tenant_of(STOLEN) is None)
            assert not keys.refused
            replace(sound("alice", "mallory"))(file)
            await until(lambda: keys.keys.tenant_of(STOLEN) is not None)

    run(test, file)
    assert "sk-" not in caplog.text


def test_a_file_written_byte_by_byte_is_taken_as_a_whole(file: Path) -> None:
    async def test(keys: KeysInUse, file: Path) -> None:
        used = {tuple(tenant.name for tenant in keys.keys.tenants)}
        with file.open("wb") as stream:
            for byte in sound("alice", "bob", "carol"):
                stream.write(bytes([byte]))
                stream.flush()
                used.add(tuple(tenant.name for tenant in keys.keys.tenants))
                await asyncio.sleep(0)  # each turn of the loop, so between any two reads
        await until(lambda: len(keys.keys.tenants) == 3)
        assert used == {("alice", "mallory")}

    run(test, file)


def test_keys_that_vanish_are_counted_in_a_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test(keys: KeysInUse, file: Path) -> None:
        replace(sound("alice"))(file)
        await until(lambda: len(keys.keys.tenants) == 1)

    run(test, file)
    (record,) = [record for record in caplog.records if record.getMessage() == "keys_removed"]
    assert record.levelno == logging.WARNING
    assert "mallory" in json.dumps(record.__dict__, default=str)


def test_a_mounted_secret_is_followed_when_its_link_is_swapped(tmp_path: Path) -> None:
    """As Kubernetes has it: keys.yaml -> ..data/keys.yaml, and ..data -> a folder that an update replaces."""

    def version(name: str, *names: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys.yaml").write_bytes(sound(*names))
        (tmp_path / "..data_tmp").symlink_to(name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    version("..1", "alice", "mallory")
    link = tmp_path / "keys.yaml"
    link.symlink_to("..data/keys.yaml")

    async def test(keys: KeysInUse, _: Path) -> None:
        version("..2", "alice")
        await until(lambda: keys.keys.tenant_of(STOLEN) is None)
        assert keys.keys.tenant_of(KEY) is not None
        assert not keys.refused

    run(test, link)


@pytest.mark.parametrize("name", ODD)
def test_start_and_light_settings_raise_typed_errors(file: Path, name: str) -> None:
    settings = AuthSettings(str(file), ("best_effort",), (), 0.01)

    async def take() -> None:
        keys = KeysInUse(settings, settle_s=0.001)
        ODD[name](file)
        with pytest.raises(ConfigError):
            await keys.take(settings)
        assert keys.keys.tenant_of(KEY) is not None

    asyncio.run(take())
    with pytest.raises(ConfigError):
        KeysInUse(settings, settle_s=0.001)


def test_a_look_that_fails_is_not_the_last(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(keys: KeysInUse, file: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "to_thread", _no_thread)
            await until(lambda: "keys_look_failed" in caplog.text)
            await asyncio.sleep(0.05)
        assert caplog.text.count("keys_look_failed") == 1
        replace(sound("alice"))(file)
        await until(lambda: len(keys.keys.tenants) == 1)

    run(test, file)


async def _no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")
