"""Drafters' files: fetched, gone on with, checked, bounded and forgotten."""

import asyncio
import hashlib
import os
from contextlib import AbstractContextManager, nullcontext
from email.message import Message
from http.client import HTTPResponse
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast
from urllib.error import HTTPError

import pytest

from actors.waiting import within
from edge import drafter_cache
from edge.dialler import Dialler
from edge.drafter_cache import DrafterCache, FetchAbandonedError, cache_folder
from outrider.contracts.errors import ModelUnavailableError
from tests.unit.edge.certificates import Authority, Identity
from tests.unit.edge.conftest import access_to
from tests.unit.edge.gateway import Gateway
from tests.unit.edge.test_dialler import SOON_S, running, until

FILE = bytes(range(256)) * 400
DIGEST = hashlib.sha256(FILE).digest()


class Source:
    """In place of a gateway's answers: the file, of which some answers end early, or begin elsewhere."""

    def __init__(self, file: bytes = FILE, ends: tuple[int | None, ...] = (), *, resumes: bool = True) -> None:
        self._file, self._ends, self._resumes = file, list(ends), resumes
        self.asked: list[int] = []

    def __call__(self, start: int) -> AbstractContextManager[HTTPResponse]:
        self.asked.append(start)
        first = start if self._resumes else 0
        answer: Any = BytesIO(self._file[first : self._ends.pop(0) if self._ends else None])
        answer_ = Answer(answer, 206 if first else 200, {"Content-Range": f"bytes {first}-"} if first else {})
        return nullcontext(cast("HTTPResponse", answer_))


class Answer:
    def __init__(self, content: BytesIO, status: int, headers: dict[str, str]) -> None:
        self.read1, self.status, self.headers = content.read1, status, headers


def fetched(cache: DrafterCache, source: Source, digest: bytes = DIGEST, size: int = len(FILE)) -> Path:
    return cache.file(digest, size, source, Event(), lambda _: None)


class BusySource(Source):
    """A gateway that sends the file to others at first."""

    def __call__(self, start: int) -> AbstractContextManager[HTTPResponse]:
        if len(self.asked) < 2:
            self.asked.append(start)
            raise HTTPError("", 503, "", Message(), None)
        return super().__call__(start)


def test_a_file_that_others_are_sent_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_cache, "_NOT_YET_S", 0.01)
    source = BusySource()
    assert fetched(DrafterCache(tmp_path), source).read_bytes() == FILE
    assert source.asked == [0, 0, 0]
    abandoned = Event()
    abandoned.set()
    with pytest.raises(FetchAbandonedError):
        DrafterCache(tmp_path / "other").file(DIGEST, len(FILE), BusySource(), abandoned, lambda _: None)


@pytest.mark.parametrize("resumes", [True, False])
def test_a_fetch_that_broke_off_goes_on_where_it_was(resumes: bool, tmp_path: Path) -> None:
    cache, source = DrafterCache(tmp_path), Source(ends=(1000, 50_000), resumes=resumes)
    for held in (1000, 50_000):
        with pytest.raises(ConnectionError, match=f"found the first {held}"):
            fetched(cache, source)
        assert cache.newest() is None
    assert fetched(cache, source).read_bytes() == FILE
    assert source.asked == [0, 1000, 50_000]
    assert fetched(cache, source).read_bytes() == FILE
    assert len(source.asked) == 3, "it is there"
    assert cache.newest() == DIGEST
    assert sorted(file.suffix for file in tmp_path.iterdir()) == ["", ".onnx"]


@pytest.mark.parametrize("file", [b"x" * len(FILE), FILE[1:] + b"x", b"x" + FILE])
def test_another_file_than_promised_is_removed(file: bytes, tmp_path: Path) -> None:
    cache = DrafterCache(tmp_path)
    with pytest.raises(ModelUnavailableError, match=f"needs a drafter with sha256 {DIGEST.hex()}, found"):
        fetched(cache, Source(file))
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_no_more_is_read_than_promised(tmp_path: Path) -> None:
    assert fetched(DrafterCache(tmp_path), Source(FILE + bytes(2**20))).read_bytes() == FILE


@pytest.mark.parametrize("size", [0, 2**31 + 1, 2**62])
def test_a_file_that_is_too_large_is_not_asked_for(size: int, tmp_path: Path) -> None:
    source = Source()
    with pytest.raises(ModelUnavailableError, match="needs a drafter of at most"):
        fetched(DrafterCache(tmp_path), source, size=size)
    assert source.asked == []


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    cache = DrafterCache(tmp_path)
    fetched(cache, Source()).write_bytes(b"damaged")
    assert fetched(cache, Source()).read_bytes() == FILE


def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache, names = DrafterCache(tmp_path, 250_000), []
    (tmp_path / "mine.onnx").write_bytes(bytes(10**6))
    for number in range(4):
        file = bytes([number]) * 100_000
        names.append(fetched(cache, Source(file), hashlib.sha256(file).digest(), len(file)))
        os.utime(names[-1], (number + 1, number + 1))
        (tmp_path / f"{number}{'0' * 63}.part").write_bytes(bytes(10))
    assert [name.exists() for name in names] == [False, False, True, True]
    assert len(list(tmp_path.glob("*.part"))) == 1, "of what was not finished the last"
    assert cache.forget() == (2, 200_010)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.onnx"], "others' files stay"


def test_several_fetch_a_file_once(tmp_path: Path) -> None:
    cache, source = DrafterCache(tmp_path), Source()
    threads = [Thread(target=fetched, args=(DrafterCache(tmp_path), source)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert source.asked == [0]
    assert cache.newest() == DIGEST


def test_a_fetch_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    abandoned = Event()
    abandoned.set()
    with pytest.raises(FetchAbandonedError):
        DrafterCache(tmp_path).file(DIGEST, len(FILE), Source(), abandoned, lambda _: None)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"CACHE_DIRECTORY": "/var/cache/outrider-edge", "XDG_CACHE_HOME": "/x"}, "/var/cache/outrider-edge"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/outrider-edge"),
        ({"HOME": "/home/a"}, "/home/a/.cache/outrider-edge"),
    ],
)
def test_the_cache_is_where_a_user_expects_it(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CACHE_DIRECTORY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


def test_a_gateways_file_is_fetched_in_parts(
    gateway: Gateway, authority: Authority, server: Identity, tmp_path: Path
) -> None:
    """Over its HTTPS, whatever it answers."""

    async def test() -> None:
        gateway.cut_at = 5000
        async with gateway.listening(authority.server(server)):
            device = Dialler(access_to(gateway, authority), DrafterCache(tmp_path))
            async with running(device):
                await gateway.served(2)
                assert gateway.ranges[0] is None
                assert 0 < int(str(gateway.ranges[1]).removeprefix("bytes=").removesuffix("-")) <= 5000
                assert DrafterCache(tmp_path).newest() == gateway.digest
            gateway.file = gateway.file[:-1] + b"x"
            device = Dialler(access_to(gateway, authority), DrafterCache(tmp_path / "other"))
            async with running(device):
                await until(lambda: "needs a drafter with sha256" in device.link)
                assert int(device.link.split()[-2]) >= 60, "it is not fetched over and over"

    asyncio.run(within(SOON_S, test()))
