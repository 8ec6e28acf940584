"""Devices that are silent, slow or read nothing hold up neither their transport nor the memory of its process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from actors.coordinator import socket_transport
from actors.waiting import within
from edge.frames import frame, read_frame
from edge.server import HostServer
from outrider.contracts.errors import DrafterBrokenError, DrafterLostError, DrafterSilentError
from outrider.wire.calls import write_call
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer, plain
from tests.unit.actors.coordinator.socket_client import SocketClient
from tests.unit.actors.coordinator.test_transport_suite import RIGS
from tests.unit.actors.coordinator.transport_suite import CARD, LATE_S, SOON_S, STUCK, Client, SuiteHost

MUCH = bytes(8 * 2**20)  # more than sockets hold
FIVE_S = 5.0

Answering = Callable[[int, bytes, asyncio.StreamWriter], None]


class OddDevice:
    """Answers calls in a way of its own, or reads none, on any number of streams."""

    def __init__(self, answer: Answering | None, said: bytes = b"") -> None:
        self._answer, self._said, self.ended = answer, said, asyncio.Event()
        self._streams = list[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the stream ends."""
        self._streams.append(writer)
        number, _ = await read_frame(reader, lambda _: MAX_MESSAGE_BYTES)
        writer.write(frame(number, plain(CARD)) + self._said)
        if self._answer is None:
            return
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                self._answer(*await read_frame(reader, lambda _: MAX_MESSAGE_BYTES), writer)
        self.ended.set()

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[SocketClient]:
        """Connect a transport to it, for a while."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        transport = SocketClient("d", lambda: asyncio.open_connection(*server.sockets[0].getsockname()))
        yield transport
        await within(FIVE_S, transport.disconnect())
        server.close()
        for writer in self._streams:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


def test_a_device_that_does_not_read_holds_nobody_up() -> None:
    async def run() -> None:
        async with OddDevice(None).transport() as transport:
            with pytest.raises(DrafterSilentError):
                await transport.probe(MUCH, 1, LATE_S)
            waiting = asyncio.create_task(transport.probe(MUCH, 1, SOON_S))
            await asyncio.sleep(0)
            await within(FIVE_S, transport.disconnect())
            opened = transport.opened
            with pytest.raises(DrafterLostError, match="is disconnected"):
                await waiting
            with pytest.raises(DrafterLostError, match="is disconnected"):
                await transport.probe(b"?", 1, SOON_S)
            assert transport.opened == opened

    asyncio.run(within(SOON_S, run()))


def test_what_is_no_frame_is_told_although_nothing_is_read() -> None:
    async def run() -> None:
        async with OddDevice(None, b"\xff" * 99).transport() as transport:
            with pytest.raises(DrafterBrokenError, match="for call 65535"):
                await transport.probe(MUCH, 1, FIVE_S)

    asyncio.run(within(SOON_S, run()))


def test_a_host_leaves_a_caller_that_reads_nothing() -> None:
    async def run() -> None:
        left, answers = asyncio.Event(), HostServer(SuiteHost())

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answers.serve(reader, writer)
            left.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1)
        writer.write(frame(1, write_call("probe", b"", len(MUCH))))
        await reader.readexactly(1)  # of a reply that is never read whole
        writer.write(b"\xff" * 99)
        await within(FIVE_S, left.wait())
        writer.transport.abort()
        server.close()
        await server.wait_closed()

    asyncio.run(within(SOON_S, run()))


def say_nothing(_number: int, _call: bytes, _writer: asyncio.StreamWriter) -> None:
    pass


def test_a_silent_device_is_cut_off() -> None:
    async def run() -> None:
        device = OddDevice(say_nothing)
        async with device.transport() as transport:
            for opened in (1, 2):
                with pytest.raises(DrafterSilentError):
                    await transport.probe(b"?", 1, LATE_S)
                await within(FIVE_S, device.ended.wait())
                device.ended.clear()
                assert transport.opened == opened

    asyncio.run(within(SOON_S, run()))


def test_a_device_that_never_says_what_it_is_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "_GREETED_S", 2 * LATE_S)
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
        writer.close()
        ended.set()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        transport = SocketClient("d", lambda: asyncio.open_connection(*server.sockets[0].getsockname()))
        with pytest.raises(DrafterSilentError):
            await transport.greet(LATE_S)
        await within(FIVE_S, ended.wait())
        await transport.disconnect()
        server.close()
        await server.wait_closed()

    asyncio.run(within(SOON_S, run()))


def test_a_device_that_is_late_with_one_answer_is_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with RIGS["tcp socket"](tmp_path) as rig:
            client = Client(rig.transport, STUCK)
            await client.open()
            late = asyncio.create_task(client.asked(LATE_S))
            while not late.done():
                await rig.transport.probe(b"?", 1, SOON_S)
            assert isinstance(late.exception(), DrafterSilentError)
            await rig.go_on()
            await client.round()
            assert rig.transport.opened == 1

    asyncio.run(within(SOON_S, run()))


def test_a_late_reply_answers_no_call_that_came_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though numbers are used again."""
    monkeypatch.setattr(socket_transport, "_NUMBERS", 8)
    late: list[int] = []

    def answer(number: int, call: bytes, writer: asyncio.StreamWriter) -> None:
        if call == write_call("probe", b"late", 1):
            late.append(number)
            return
        told = frame(number, plain(Answer(b"n", 0.0)))
        again = call == write_call("probe", b"again", 1)
        writer.write(frame(late.pop(), plain(Answer(b"o", 0.0))) + told if again else told)

    async def run() -> None:
        async with OddDevice(answer).transport() as transport:
            waiting = asyncio.create_task(transport.probe(b"late", 1, LATE_S))
            while not waiting.done():
                await transport.probe(b"?", 1, SOON_S)
            assert isinstance(waiting.exception(), DrafterSilentError)
            for sent in (b"?",) * 20 + (b"again",) + (b"?",) * 20:
                assert (await transport.probe(sent, 1, SOON_S)).data == b"n"
            assert (transport.opened, late) == (1, [])

    asyncio.run(within(SOON_S, run()))


def test_too_many_calls_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "_MOST_UNANSWERED", 4)

    async def run() -> None:
        async with OddDevice(say_nothing).transport() as transport:
            waiting = [asyncio.create_task(transport.probe(b"?", 1, SOON_S)) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(DrafterSilentError, match="needs fewer than 4 calls"):
                await transport.probe(b"?", 1, SOON_S)
        assert all(
            isinstance(call, DrafterLostError) for call in await asyncio.gather(*waiting, return_exceptions=True)
        )

    asyncio.run(within(SOON_S, run()))


def test_a_device_that_leaves_calls_unanswered_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they were closings, for which nobody waits."""
    monkeypatch.setattr(socket_transport, "_MOST_UNANSWERED", 40)

    def answer(number: int, call: bytes, writer: asyncio.StreamWriter) -> None:
        if call == write_call("probe", b"?", 1):
            writer.write(frame(number, plain(Answer(b"n", 0.0))))

    async def run() -> None:
        device = OddDevice(answer)
        async with device.transport() as transport:
            await transport.probe(b"?", 1, SOON_S)
            for _ in range(60):
                transport.close("g")
            await within(FIVE_S, device.ended.wait())
            await transport.probe(b"?", 1, SOON_S)
            assert transport.opened == 2

    asyncio.run(within(SOON_S, run()))


def test_bytes_that_a_device_does_not_read_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "_MOST_UNSENT_BYTES", 2**20)

    async def run() -> None:
        async with OddDevice(None).transport() as transport:
            calls = [asyncio.create_task(transport.probe(bytes(2**20), 1, SOON_S)) for _ in range(9)]
            done, waiting = await asyncio.wait(calls, timeout=LATE_S)
            assert [str(call.exception())[:34] for call in done] == ["drafter d needs fewer than 4096 ca"] * 8
            assert len(waiting) == 1

    asyncio.run(within(SOON_S, run()))
