"""The file in which a coordinator keeps what its tuner learned: rarely written, whole, bounded, and never trusted."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from actors.messages import ModelCard
from outrider.config.reading import parse_config
from outrider.costs.profiles import ProfiledOn
from outrider.selection.tuning.learned import MAX_LEARNED_BYTES, LearnedChoice
from outrider.selection.tuning.rewards import Reward
from serve_app.coordination.learned_file import LearnedFile, key_of
from serve_app.coordination.settings import coordinator_settings

LEARNED = LearnedChoice("lookup", {"lookup": (Reward(1.0, 30.0, 2.0, 0.01),)}, {"lookup_draft": 10.0})
CARD = ModelCard("m", "hash", "map", 10, (), 100)
MACHINE = ProfiledOn("EPYC", "cpu", 1, "torch", "m", "float32")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def kept(folder: Path, learned: LearnedChoice = LEARNED, key: str | None = "k") -> None:
    """Write it, as a coordinator would after a while."""
    clock = Clock()
    file = LearnedFile(key, clock, folder)
    clock.now_s = 60.0
    asyncio.run(file.keep(lambda: learned))


def read(folder: Path, key: str | None = "k") -> LearnedChoice:
    return asyncio.run(LearnedFile(key, Clock(), folder).read())


def test_what_is_kept_is_there_at_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(tmp_path) == LearnedChoice()
    kept(tmp_path)
    assert read(tmp_path) == LEARNED
    assert read(tmp_path, "another") == LearnedChoice()
    assert not caplog.records
    assert [file.name for file in (tmp_path / "learned").iterdir()] == ["k.json"], "nothing half written is left"


def test_it_is_written_rarely_and_only_if_there_is_news(tmp_path: Path) -> None:
    clock, asked = Clock(), 0
    file = LearnedFile("k", clock, tmp_path)

    def learned() -> LearnedChoice:
        nonlocal asked
        asked += 1
        return LEARNED

    async def an_hour() -> None:
        for second in range(3600):
            clock.now_s = float(second)
            await file.keep(learned)

    asyncio.run(an_hour())
    assert asked < 200
    written_at = (tmp_path / "learned" / "k.json").stat().st_mtime_ns
    clock.now_s = 4000.0
    asyncio.run(file.keep(learned))
    assert (tmp_path / "learned" / "k.json").stat().st_mtime_ns == written_at


def test_nothing_is_kept_before_anything_is_measured_or_without_a_key(tmp_path: Path) -> None:
    kept(tmp_path, LearnedChoice("lookup"))
    kept(tmp_path, LEARNED, key=None)
    assert not list(tmp_path.iterdir())


def _folder(path: Path) -> None:
    path.mkdir()


def _to_itself(path: Path) -> None:
    path.symlink_to(path)


def _to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _too_long(path: Path) -> None:
    path.write_bytes(b" " * (MAX_LEARNED_BYTES + 1))


def _no_text(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


@pytest.mark.parametrize("put", [_folder, os.mkfifo, _to_itself, _to_a_device, _too_long, _no_text])
def test_a_broken_or_hostile_file_is_ignored_with_one_line(
    put: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "learned").mkdir()
    put(tmp_path / "learned" / "k.json")
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path) == LearnedChoice()
    assert [record.msg for record in caplog.records] in (["learned_choice_ignored"], []), "a link to nothing is missing"
    assert put is _to_itself or caplog.records


def test_a_place_that_takes_nothing_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "learned").write_text("no folder")
    clock = Clock()
    file = LearnedFile("k", clock, tmp_path)
    for clock.now_s in (30.0, 60.0, 90.0):
        asyncio.run(file.keep(lambda: LEARNED))
    assert [record.msg for record in caplog.records] == ["learned_choice_not_kept"]


def test_the_oldest_files_go(tmp_path: Path) -> None:
    folder = tmp_path / "learned"
    folder.mkdir()
    for number in range(100):
        file = folder / f"{number}.json"
        file.write_text("{}")
        os.utime(file, (number, number))
    kept(tmp_path)
    assert len(list(folder.iterdir())) == 64
    assert not (folder / "0.json").exists()
    assert read(tmp_path) == LEARNED


def key(text: str = "", machine: ProfiledOn | None = MACHINE, models: str = "a") -> str | None:
    settings = coordinator_settings(parse_config(text, "text"))
    drafting = settings.generations.drafting
    return key_of(replace(CARD, machine=machine), settings.verifier.spec, drafting, {"embedded": models})


TRUSTED = "drafters: [{name: embedded, trust: trusted%s}]"


def test_a_key_is_of_pair_machine_and_settings_and_there_is_none_for_strangers() -> None:
    own = key(TRUSTED % "")
    assert own == key(TRUSTED % "")
    others = [
        key(TRUSTED % "", models="b"),
        key(TRUSTED % "", machine=replace(MACHINE, hardware="Xeon")),
        key(TRUSTED % "", machine=replace(MACHINE, threads=2)),
        key(TRUSTED % "", machine=replace(MACHINE, engine="vllm")),
        key(TRUSTED % ", emulated_step_ms: 5"),
        key(TRUSTED % "" + "\nspeculation: {lookup_window: 4}"),
        key(TRUSTED % "" + "\nverifiers: {emulated_pass_ms: 50}"),
        key("drafters: []"),
    ]
    assert len({own, *others}) == len(others) + 1
    assert None not in others
    assert key() is None, "drafters of other machines are trusted by nobody who does not say so"
    assert key("drafters: [{name: far, from: gateway, engine: onnx, model_hash: " + "a" * 64 + "}]") is None
    assert key(TRUSTED % "", machine=None) is None
