"""The suite of transports over a host in this process: called directly, and over sockets of both kinds."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.coordinator import socket_transport
from actors.coordinator.drafter_replies import checked_probe, silent
from actors.coordinator.socket_transport import Stream
from actors.waiting import within
from edge.frames import frame, read_frame
from edge.server import HostServer
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import DrafterBrokenError, DrafterLostError, DrafterSilentError, MessageError
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS, VersionRange, Versions
from outrider.wire.calls import write_call
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from outrider.wire.replies import Answer, DrafterHoldings, answer_bytes, holding, plain, read_reply
from tests.unit.actors.coordinator.socket_client import SocketClient
from tests.unit.actors.coordinator.transport_suite import (
    CARD,
    LATE_S,
    SOON_S,
    STUCK,
    Client,
    Rig,
    SuiteHost,
    every_check,
)


class CalledTransport:
    """``DrafterTransport`` without anything between."""

    message_version = VERSIONS.messages.newest

    def __init__(self, host: SuiteHost) -> None:
        self._host, self.gone = host, False
        self._closing = set[asyncio.Task[bytes]]()

    async def open(self, request: OpenGeneration, terms: DraftTerms, deadline_s: float) -> None:
        await self._called(deadline_s, 4096, "open", request, terms)

    async def exchange(
        self, generation: GenerationId, order: bytes, deadline_s: float, most_bytes: int = MAX_MESSAGE_BYTES
    ) -> Answer:
        answer: Answer = await self._called(deadline_s, answer_bytes(most_bytes), "exchange", generation, order)
        return answer

    async def probe(self, sent: bytes, reply_bytes: int, deadline_s: float) -> Answer:
        reply = await self._called(deadline_s, answer_bytes(reply_bytes), "probe", sent, reply_bytes)
        return checked_probe("d", reply, reply_bytes)

    def close(self, generation: GenerationId) -> None:
        self._closing.add(asyncio.ensure_future(self._host.answer(write_call("close", generation))))

    async def _called(self, deadline_s: float, most_bytes: int, method: str, *arguments: Any) -> Any:
        if self.gone:
            raise DrafterLostError("gone")
        answering = asyncio.ensure_future(self._host.answer(write_call(method, *arguments)))
        await asyncio.wait({answering}, timeout=deadline_s)
        if not answering.done() or answering.cancelled():
            answering.cancel()
            raise silent("d", deadline_s)
        return read_reply(answering.result(), most_bytes)


class InProcess:
    """The host, and the way to it."""

    def __init__(self, host: SuiteHost, transport: Any, server: asyncio.Server | None = None) -> None:
        self.host, self.transport, self._server = host, transport, server
        self.streams: list[asyncio.StreamWriter] = []

    async def go_on(self) -> None:
        self.host.drafter.may_go_on.set()

    async def lose(self, generation: GenerationId) -> None:
        await self.host.close(generation)

    async def end(self) -> None:
        """No more connections, and none of those that there are."""
        if self._server is None:
            self.transport.gone = True
            return
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break the connections that there are."""
        for writer in self.streams:
            if not writer.is_closing():
                writer.transport.abort()
        self.streams.clear()


@asynccontextmanager
async def called(_folder: Path) -> AsyncIterator[InProcess]:
    host = SuiteHost()
    yield InProcess(host, CalledTransport(host))
    host.drafter.may_go_on.set()


def over_socket(*, unix: bool) -> Callable[[Path], AbstractAsyncContextManager[InProcess]]:
    @asynccontextmanager
    async def rig(folder: Path) -> AsyncIterator[InProcess]:
        host = SuiteHost()
        answers = HostServer(host)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.streams.append(writer)
            await answers.serve(reader, writer)

        path = str(folder / "drafter.sock")
        if unix:
            server = await asyncio.start_unix_server(serve, path)
        else:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)

        async def connect() -> Stream:
            if unix:
                return await asyncio.open_unix_connection(path)
            return await asyncio.open_connection(*server.sockets[0].getsockname())

        transport = SocketClient("d", connect)
        found = InProcess(host, transport, server)
        assert await transport.greet(SOON_S) == CARD
        yield found
        host.drafter.may_go_on.set()
        await transport.disconnect()
        await found.end()

    return rig


NEWER = Versions(VersionRange(6, 9), VersionRange(2, 5), VERSIONS.noise)  # than this release's
RIGS = {"called": called, "unix socket": over_socket(unix=True), "tcp socket": over_socket(unix=False)}


@every_check
@pytest.mark.parametrize("rig", RIGS)
def test_a_transport_does_its_work(rig: str, check: Callable[[Rig], Awaitable[None]], tmp_path: Path) -> None:
    async def run() -> None:
        async with RIGS[rig](tmp_path) as found:
            await check(found)

    asyncio.run(within(SOON_S, run()))


def test_calls_that_wait_are_sent_again_when_the_connection_breaks(tmp_path: Path) -> None:
    async def run() -> None:
        async with RIGS["unix socket"](tmp_path) as rig:
            client, beside = Client(rig.transport, STUCK), Client(rig.transport)
            await client.open()
            await beside.open()
            rounds = [asyncio.create_task(client.round()), asyncio.create_task(beside.round())]
            await rig.transport.probe(b"?", 1, SOON_S)
            rig.cut()
            await rig.transport.probe(b"?", 1, SOON_S)
            await rig.go_on()
            await asyncio.gather(*rounds)
            assert rig.transport.opened == 2
            await client.round()

    asyncio.run(within(SOON_S, run()))


def test_a_drafter_that_comes_up_again_holds_nothing(tmp_path: Path) -> None:
    """And is found again without another transport."""

    async def run() -> None:
        async with RIGS["unix socket"](tmp_path) as rig:
            client = Client(rig.transport)
            await client.open()
            await rig.end()
            (tmp_path / "drafter.sock").unlink(missing_ok=True)
            waiting = asyncio.create_task(client.asked())
            again = await asyncio.start_unix_server(HostServer(SuiteHost()).serve, str(tmp_path / "drafter.sock"))
            assert (await waiting).data == b""
            await client.open()
            again.close()

    asyncio.run(within(SOON_S, run()))


def test_a_drafter_proves_itself_and_tells_what_it_holds(tmp_path: Path) -> None:
    async def run() -> None:
        async with RIGS["tcp socket"](tmp_path) as rig:
            await rig.transport.prove(SOON_S)
            await Client(rig.transport, "a").open()
            held = await rig.transport.held(SOON_S, 4096)
            assert held == DrafterHoldings(("a",))
            assert holding(held, 8)[1] == {"a"}

    asyncio.run(within(SOON_S, run()))


@pytest.mark.parametrize(
    ("protocol", "messages", "agreed"),
    [
        ((7, 99), (2, 99), (9, 5)),
        ((5, 8), (1, 4), (8, 4)),
        ((7, 7), (3, 3), (7, 3)),
        ((10, 11), (2, 2), None),
        ((6, 6), (2, 2), None),
        ((7, 7), (6, 7), None),
    ],
    ids=str,
)
def test_the_highest_version_of_both_sides_is_used(
    protocol: tuple[int, int],
    messages: tuple[int, int],
    agreed: tuple[int, int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol 6 has no calls as bytes."""
    monkeypatch.setattr(socket_transport, "VERSIONS", NEWER)
    versions = Versions(VersionRange(*protocol), VersionRange(*messages), VERSIONS.noise)

    async def run() -> None:
        async with RIGS["unix socket"](tmp_path) as rig:
            monkeypatch.setattr(rig.host, "_card", replace(CARD, versions=versions))
            if agreed is None:
                with pytest.raises(
                    DrafterBrokenError, match=r"needs (protocol|messages|noise) version .*; install the same version"
                ):
                    await rig.transport.greet(SOON_S)
            else:
                await rig.transport.greet(SOON_S)
                assert agreed == (rig.transport.protocol_version, rig.transport.message_version)

    asyncio.run(within(SOON_S, run()))


def test_versions_are_agreed_on_before_anything_else_on_every_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the device may have been updated in between."""
    monkeypatch.setattr(socket_transport, "VERSIONS", NEWER)

    async def run() -> None:
        async with RIGS["unix socket"](tmp_path) as rig:
            for newest in (4, 3, 4):
                versions = replace(VERSIONS, messages=VersionRange(2, newest))
                monkeypatch.setattr(rig.host, "_card", replace(CARD, versions=versions))
                rig.cut()
                await rig.transport.probe(b"?", 1, SOON_S)
                assert rig.transport.message_version == newest
            versions = replace(VERSIONS, noise=VersionRange(2, 3))
            monkeypatch.setattr(rig.host, "_card", replace(CARD, versions=versions))
            rig.cut()
            with pytest.raises(DrafterBrokenError, match=r"drafter d: needs noise version 2, found 2\.\.3"):
                await rig.transport.probe(b"?", 1, SOON_S)

    asyncio.run(within(SOON_S, run()))


async def spoken_to(said: Callable[[int], bytes], deadline_s: float) -> SocketClient:
    """Ask a device whose socket answers a call, by its number, with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting, _ = await read_frame(reader, lambda _: MAX_MESSAGE_BYTES)
        writer.write(frame(greeting, plain(CARD)))
        number, _ = await read_frame(reader, lambda _: MAX_MESSAGE_BYTES)
        writer.write(said(number))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = SocketClient("d", lambda: asyncio.open_connection(*server.sockets[0].getsockname()))
    try:
        await transport.exchange("g", b"order", deadline_s, 4096)
    finally:
        await transport.disconnect()
        server.close()
        await server.wait_closed()
    return transport


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        (lambda number: frame(number, bytes(8192)), DrafterBrokenError, "at most 4105 bytes for call 1, found 8192"),
        (lambda number: frame(number, b"")[:4], DrafterSilentError, "needs to answer within"),
        (lambda _: b"\xff" * 6 + bytes(99), DrafterBrokenError, "for call 65535, found 4294967295"),
        (lambda number: frame(number + 1, b""), DrafterBrokenError, "at most -1 bytes for call 2"),
        (lambda number: frame(number, b"\xff"), DrafterBrokenError, "needs a reply in plain bytes"),
        (lambda number: frame(number, plain(None)), DrafterBrokenError, "needs to send an Answer, found None"),
        (lambda _: b"", DrafterSilentError, "needs to answer within"),
    ],
    ids=["too long", "half a head", "bits", "of no call", "no reply", "another reply", "nothing"],
)
def test_a_device_that_sends_no_frames_of_ours_is_told(
    said: Callable[[int], bytes], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        asyncio.run(within(SOON_S, spoken_to(said, LATE_S)))


def test_a_reply_is_read_once() -> None:
    """And one that comes late without harm."""

    async def run() -> None:
        twice = await spoken_to(lambda number: 2 * frame(number, plain(Answer(b"x", 0.0))), SOON_S)
        assert twice.opened == 1

    asyncio.run(within(SOON_S, run()))


@given(data=st.binary(max_size=40), most_bytes=st.integers(0, 9))
def test_any_bytes_are_frames_or_refused(data: bytes, most_bytes: int) -> None:
    async def run() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        try:
            while True:
                assert len((await read_frame(reader, lambda _: most_bytes))[1]) <= most_bytes
        except (MessageError, asyncio.IncompleteReadError):
            pass

    asyncio.run(run())


def test_a_host_goes_on_behind_a_caller_that_sends_no_frames(tmp_path: Path) -> None:
    async def run() -> None:
        async with RIGS["unix socket"](tmp_path) as rig:
            client = Client(rig.transport)
            await client.open()
            for said in (b"\xff" * 99, b"\0", frame(1, b"")[:5], frame(1, b"call") * 300, os.urandom(4096)):
                reader, writer = await asyncio.open_unix_connection(str(tmp_path / "drafter.sock"))
                writer.write(said)
                writer.write_eof()
                await reader.read()
                writer.close()
            await client.round()

    asyncio.run(within(SOON_S, run()))
