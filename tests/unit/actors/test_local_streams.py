"""Streams between two processes of one node: who is let in, and what is left when an end goes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from actors.local_streams import Stream, connect, listen
from actors.waiting import within

_WAIT_S = 30.0


async def echo(stream: Stream) -> None:
    reader, writer = stream
    writer.write(await reader.read(100))
    writer.close()


@asynccontextmanager
async def echoing(file: Path) -> AsyncIterator[None]:
    server = await listen(file, echo)
    assert server is not None
    yield
    server.close()


async def echoed(file: Path) -> bytes:
    stream = await connect(file)
    assert stream is not None
    reader, writer = stream
    writer.write(b"hello")
    answer = await reader.read()
    writer.close()
    return answer


def run_within(coroutine: object) -> None:
    asyncio.run(within(_WAIT_S, coroutine))  # type: ignore[arg-type]


def test_who_listens_is_heard(tmp_path: Path) -> None:
    async def heard() -> None:
        async with echoing(tmp_path / "s"):
            assert await echoed(tmp_path / "s") == b"hello"

    run_within(heard())


def test_a_process_takes_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    async def heard() -> None:
        server = await listen(tmp_path / "s", echo)
        assert server is not None
        server.close()
        assert await connect(tmp_path / "s") is None, "the file is still there, and nobody listens"
        async with echoing(tmp_path / "s"):
            assert await echoed(tmp_path / "s") == b"hello"

    run_within(heard())


@pytest.mark.parametrize("file", [None, Path("nowhere", "s")])
def test_where_nobody_can_listen_there_is_no_stream(file: Path | None) -> None:
    async def tried() -> None:
        assert await listen(file, echo) is None
        assert await connect(file) is None

    run_within(tried())


def test_another_users_process_is_not_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = os.geteuid()

    async def tried() -> None:
        async with echoing(tmp_path / "s"):
            monkeypatch.setattr("os.geteuid", lambda: ours + 1)
            assert await connect(tmp_path / "s") is None
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            writer.write(b"hello")
            with suppress(ConnectionResetError):  # or closed in order: nothing is said either way
                assert not await reader.read()
            writer.close()

    run_within(tried())
