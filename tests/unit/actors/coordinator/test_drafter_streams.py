"""The suite of transports over an actor's stream, without Ray; and what is done where there is none any more."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError

from actors.coordinator import drafter_streams, socket_transport
from actors.coordinator.drafter_streams import DrafterStream, DrafterStreams
from actors.coordinator.transport import RayDrafterTransport
from actors.drafter import call_listener
from actors.drafter.call_listener import CallListener
from actors.messages import DrafterId
from actors.proved_streams import StreamPlace, prove_to_listener
from actors.tcp_counts import Address
from actors.waiting import within
from edge.frames import frame, read_frame
from outrider.contracts.errors import DrafterLostError, DrafterSilentError, MessageError, OutriderError
from outrider.contracts.requests import GenerationId
from outrider.versions import VERSIONS
from outrider.wire.calls import MOST_DEVICE_PROBE_BYTES, write_call
from outrider.wire.replies import Answer, Reply, plain, plain_failure, read_reply, reply_bytes
from tests.unit.actors.coordinator.test_socket_limits import OddDevice
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

HERE = "127.0.0.1"
QUIET_S = 0.05


class SuiteListener(CallListener):
    """Whose streams can be broken from its end."""

    def __init__(self, host: SuiteHost, address: str = HERE) -> None:
        super().__init__(host, address)
        self.streams = list[asyncio.StreamWriter]()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams.append(writer)
        await super()._serve(reader, writer)

    def cut(self) -> None:
        for writer in self.streams:
            writer.transport.abort()
        self.streams.clear()

    def end(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()


class CalledMethod:
    """Called as a method of an actor's handle is; notes its calls."""

    def __init__(self, actor: "Actor", name: str, most_bytes: int) -> None:
        self._actor, self._name, self._most_bytes = actor, name, most_bytes

    def at_most(self, most_bytes: int) -> "CalledMethod":
        """The same, of smaller replies."""
        return CalledMethod(self._actor, self._name, most_bytes)

    def remote(self, *arguments: Any) -> "asyncio.Future[Reply]":
        """What stands for the reference."""
        self._actor.called.append(self._name)
        return asyncio.ensure_future(self._actor.reply(self._name, arguments, self._most_bytes))


class Actor:
    """A host that is called as an actor is, by its handle and over its stream."""

    messages = VERSIONS.messages

    def __init__(self) -> None:
        self.host, self.called, self.is_gone = SuiteHost(), list[str](), False
        self.listener, self.places = SuiteListener(self.host), list[Address]()
        self.streamed = DrafterStream("d", cast("Any", self), self.places.append)
        self.transport = RayDrafterTransport("d", cast("Any", self), self.streamed)

    def __getattr__(self, name: str) -> CalledMethod:
        return CalledMethod(self, name, reply_bytes(name))

    async def reply(self, method: str, arguments: tuple[Any, ...], most_bytes: int) -> Reply:
        if self.is_gone:
            raise ActorDiedError
        if method == "stream":
            return read_reply(await self.place())
        return read_reply(await self.host.carry_out(method, arguments), most_bytes)

    async def place(self) -> bytes:
        return plain(Answer((await self.listener.place()).to_bytes(), 0.0))

    async def go_on(self) -> None:
        self.host.drafter.may_go_on.set()

    async def lose(self, generation: GenerationId) -> None:
        await self.host.close(generation)

    async def end(self) -> None:
        """As its process, streams and all."""
        self.is_gone = True
        self.listener.end()


@asynccontextmanager
async def an_actor() -> AsyncIterator[Actor]:
    actor, tasks = Actor(), len(asyncio.all_tasks())
    yield actor
    actor.host.drafter.may_go_on.set()
    actor.listener.end()
    while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 (streams end)
        await asyncio.sleep(0.001)


async def until_reached(stream: DrafterStream) -> None:
    while stream.reach() is None:  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.001)


async def streaming(actor: Actor) -> None:
    """Wait until calls go over the stream."""
    await until_reached(actor.streamed)
    actor.called.clear()


def say_card_once(number: int, _call: bytes, writer: asyncio.StreamWriter) -> None:
    """To the first call, and nothing to any later one."""
    if number == 1:
        writer.write(frame(number, plain(CARD)))


@every_check
def test_a_stream_does_a_transports_work(check: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        async with an_actor() as actor:
            await streaming(actor)
            await check(actor)

    asyncio.run(within(SOON_S, run()))


@every_check
def test_so_does_an_actor_that_never_heard_of_streams(check: Callable[[Rig], Awaitable[None]]) -> None:
    async def no_place() -> bytes:
        return plain_failure(AttributeError("stream"))

    async def run() -> None:
        async with an_actor() as actor:
            actor.place = no_place  # type: ignore[method-assign]
            await check(actor)
            assert actor.streamed.reach() is None

    asyncio.run(within(SOON_S, run()))


def test_no_ray_call_is_made_in_a_round() -> None:
    """And the first calls wait for no stream."""

    async def run() -> None:
        async with an_actor() as actor:
            client = Client(actor.transport)
            await client.open()
            assert "open" in actor.called
            await streaming(actor)
            await client.round()
            await actor.transport.probe(b"?", 1, SOON_S)
            actor.transport.close("g")
            assert (await client.asked()).data == b""
            assert actor.called == []
            assert actor.places == [(HERE, (await actor.listener.place()).port)]

    asyncio.run(within(SOON_S, run()))


def test_a_call_that_is_late_costs_no_other_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter sends its card while it computes."""
    monkeypatch.setattr(socket_transport, "_QUIET_S", QUIET_S)

    async def run() -> None:
        async with an_actor() as actor:
            client, late = Client(actor.transport, STUCK), Client(actor.transport)
            await client.open()
            await late.open()
            await streaming(actor)
            asked = asyncio.create_task(client.asked())
            with pytest.raises(DrafterSilentError):
                await late.asked(LATE_S)
            await asyncio.sleep(6 * QUIET_S)
            await actor.go_on()
            assert (await asked).data
            await client.round()
            assert len(actor.listener.streams) == 1
            assert actor.called == []

    asyncio.run(within(SOON_S, run()))


def test_calls_on_a_stream_that_is_dead_without_a_word_go_over_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before their deadlines; later ones go over another stream."""
    monkeypatch.setattr(socket_transport, "_QUIET_S", QUIET_S)

    async def run() -> None:
        async with an_actor() as actor:
            answers, actor.listener._answers = actor.listener._answers, cast("Any", OddDevice(say_card_once))  # noqa: SLF001
            client, beside = Client(actor.transport), Client(actor.transport, "beside")
            await client.open()
            await beside.open()
            await streaming(actor)
            replies = await asyncio.gather(client.asked(), beside.asked())
            assert all(reply.data for reply in replies)
            assert actor.called[:2] == ["exchange"] * 2
            actor.listener._answers = answers  # noqa: SLF001
            await streaming(actor)
            await client.round()
            assert actor.called == []

    asyncio.run(within(SOON_S, run()))


def test_a_drafter_that_ends_under_a_call_is_lost_at_once() -> None:
    """By the stream's end alone."""

    async def run() -> None:
        async with an_actor() as actor:
            client = Client(actor.transport, STUCK)
            await client.open()
            await streaming(actor)
            asked = asyncio.create_task(client.asked(10 * SOON_S))
            await actor.transport.probe(b"?", 1, SOON_S)
            await actor.end()
            with pytest.raises(DrafterLostError, match="drafter d is gone: its stream has ended"):
                await asked
            assert actor.called == []
            with pytest.raises(DrafterLostError, match="ActorDiedError"):
                await client.asked()

    asyncio.run(within(SOON_S, run()))


def test_a_call_has_one_deadline_however_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "_QUIET_S", QUIET_S)

    async def run() -> None:
        async with an_actor() as actor:
            actor.listener._answers = cast("Any", OddDevice(say_card_once))  # noqa: SLF001
            client = Client(actor.transport, STUCK)
            await client.open()
            await streaming(actor)
            with pytest.raises(DrafterSilentError, match=r"needs to answer within 0\.6 s"):
                await client.asked(2 * LATE_S)
            assert actor.called[0] == "exchange"

    asyncio.run(within(SOON_S, run()))


def test_what_is_too_large_for_a_stream_goes_over_ray() -> None:
    async def run() -> None:
        async with an_actor() as actor:
            await streaming(actor)
            assert (await actor.transport.probe(bytes(2 * MOST_DEVICE_PROBE_BYTES), 3, SOON_S)).data == bytes(3)
            assert actor.called == ["probe"]
            assert actor.streamed.reach() is not None

    asyncio.run(within(SOON_S, run()))


def test_an_actor_that_has_no_stream_is_not_asked_again_at_once() -> None:
    async def run() -> None:
        async with an_actor() as actor:
            actor.listener = SuiteListener(actor.host, "192.0.2.1")  # of no machine
            for _ in range(50):
                await actor.transport.probe(b"?", 1, SOON_S)
            assert actor.called.count("stream") == 1

    asyncio.run(within(SOON_S, run()))


def test_there_is_no_plain_stream_where_ray_speaks_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")

    async def run() -> None:
        async with an_actor() as actor:
            with pytest.raises(OutriderError, match="needs Ray without TLS"):
                await actor.listener.place()
            streams = DrafterStreams(lambda _, address: actor.places.append(address))
            assert streams.of(DrafterId("edge", 0), cast("Any", actor)) is None

    asyncio.run(within(SOON_S, run()))


def test_the_stream_of_an_actor_that_was_replaced_is_closed_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_streams, "actor_id_of", lambda method: id(method._actor))  # noqa: SLF001

    async def run() -> None:
        async with an_actor() as before, an_actor() as now:
            drafter, streams = DrafterId("edge", 0), DrafterStreams(lambda *_: None)
            first = streams.of(drafter, cast("Any", before))
            assert first is not None
            await until_reached(first)
            second = streams.of(drafter, cast("Any", now))
            assert second is not None
            await until_reached(second)
            while first.reach() is not None:  # noqa: ASYNC110 (streams end)
                await asyncio.sleep(0.001)
            assert second.reach() is not None
            await second.end()
            assert second.reach() is None

    asyncio.run(within(SOON_S, run()))


def test_an_impostor_at_the_place_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens there now does not know the secret."""
    heard = list[bytes]()
    monkeypatch.setattr(drafter_streams, "_OPEN_S", LATE_S)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(os.urandom(32))
        heard.append(await reader.readexactly(65))
        writer.write(os.urandom(32))
        heard.append(await reader.read())
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, HERE, 0)
        place = StreamPlace(HERE, server.sockets[0].getsockname()[1], bytes(32))

        async def elsewhere() -> bytes:
            return plain(Answer(place.to_bytes(), 0.0))

        async with an_actor() as actor:
            actor.place = elsewhere  # type: ignore[method-assign]
            assert actor.streamed.reach() is None
            while len(heard) < 2:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.001)
            assert heard[1] == b""
            assert actor.streamed.reach() is None
        server.close()

    asyncio.run(within(SOON_S, run()))


def test_strangers_at_the_port_are_read_nothing_of_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_listener, "_MOST_UNPROVED", 4)

    async def run() -> None:
        async with an_actor() as actor:
            place = await actor.listener.place()
            for said in (b"", b"\xff" * 65, frame(1, write_call("card")), os.urandom(4096)):
                reader, writer = await asyncio.open_connection(place.host, place.port)
                writer.write(said)
                writer.write_eof()
                with suppress(ConnectionError):
                    assert len(await reader.read()) == 32, "its nonce, and no more"
                writer.close()
            silent = [await asyncio.open_connection(place.host, place.port) for _ in range(6)]
            for reader, _ in silent[:2]:
                await reader.readexactly(32)
                with suppress(ConnectionError):
                    assert await reader.read() == b"", "the oldest make room"
            reader, writer = await asyncio.open_connection(place.host, place.port)
            await prove_to_listener(reader, writer, place.secret)
            writer.write(frame(1, write_call("card")))
            assert (await read_frame(reader, lambda _: 4096))[0] == 1
            for _, each in (*silent, (reader, writer)):
                each.transport.abort()

    asyncio.run(within(SOON_S, run()))


def test_streams_of_coordinators_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has none calls over Ray."""
    monkeypatch.setattr(call_listener, "_MOST_STREAMS", 1)

    async def run() -> None:
        async with an_actor() as actor:
            await streaming(actor)
            other = RayDrafterTransport("d", cast("Any", actor), DrafterStream("d", cast("Any", actor), print))
            for _ in range(50):
                await other.probe(b"?", 1, SOON_S)
            assert actor.called.count("probe") == 50

    asyncio.run(within(SOON_S, run()))


@given(
    place=st.builds(
        StreamPlace, st.ip_addresses().map(str), st.integers(0, 2**16 - 1), st.binary(min_size=32, max_size=32)
    )
)
def test_a_place_is_read_as_it_was_written(place: StreamPlace) -> None:
    assert StreamPlace.from_bytes(place.to_bytes()) == place
    assert repr(place.secret) not in repr(place)


@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_place_or_refused(data: bytes) -> None:
    with suppress(MessageError):
        assert StreamPlace.from_bytes(data).to_bytes()
