"""How many streams are open that have proved nothing."""

import asyncio
import socket
from contextlib import suppress

import pytest

from actors.proved_streams import StreamProofs, prove_to_listener
from actors.waiting import within
from outrider.contracts.errors import MessageError

SECRET, MOST = b"secret", 4
HERE = "127.0.0.1"


class Listener:
    """Counts the streams that it has open."""

    def __init__(self) -> None:
        self.proofs, self.open, self.most_open, self.proved = StreamProofs(SECRET, MOST), 0, 0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await self.proofs.accept(reader, writer)
            self.proved += 1
            await reader.read()
        except (MessageError, OSError, asyncio.IncompleteReadError):
            assert writer.transport.is_closing()
        finally:
            self.open -= 1
            writer.close()


async def until_open(listener: Listener, count: int) -> None:
    while listener.open != count:  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.001)


def test_streams_that_come_in_one_turn_of_the_loop_are_bounded_as_others() -> None:
    async def run() -> None:
        listener = Listener()
        async with await asyncio.start_server(listener.serve, HERE, 0, backlog=256) as server:
            where = server.sockets[0].getsockname()
            strangers = list[socket.socket]()
            for _ in range(3):
                strangers += [socket.create_connection(where) for _ in range(60)]  # all before the loop goes on
                await asyncio.sleep(0.05)
                await until_open(listener, MOST)
            reader, writer = await asyncio.open_connection(*where)
            await prove_to_listener(reader, writer, SECRET)
            await until_open(listener, MOST)
            assert listener.proved == 1
            listener.proofs.end()
            await until_open(listener, 1)
            writer.close()
            await until_open(listener, 0)
            for each in strangers:
                each.close()

    asyncio.run(within(30.0, run()))


def test_the_kernel_ends_streams_whose_other_end_is_gone_without_a_word() -> None:
    def is_kept_alive(writer: asyncio.StreamWriter) -> bool:
        return bool(writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    async def run() -> None:
        kept, proofs = list[bool](), StreamProofs(SECRET, MOST)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await proofs.accept(reader, writer)
            kept.append(is_kept_alive(writer))
            writer.close()

        async with await asyncio.start_server(serve, HERE, 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await prove_to_listener(reader, writer, SECRET)
            await reader.read()
            assert [*kept, is_kept_alive(writer)] == [True, True]
            writer.close()

    asyncio.run(within(30.0, run()))


def test_a_proof_that_comes_when_the_stream_has_made_room_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def proves(*_: object) -> None:
        await proven[0].wait()

    monkeypatch.setattr("actors.proved_streams._prove_to_coordinator", proves)

    async def run() -> None:
        proven.append(asyncio.Event())
        listener = Listener()
        async with await asyncio.start_server(listener.serve, HERE, 0) as server:
            streams = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(MOST + 1)]
            with suppress(ConnectionError):
                assert await streams[0][0].read() == b""
            proven[0].set()
            await until_open(listener, MOST)
            assert listener.proved == MOST
            for _, writer in streams:
                writer.close()
            await until_open(listener, 0)

    proven = list[asyncio.Event]()
    asyncio.run(within(30.0, run()))
