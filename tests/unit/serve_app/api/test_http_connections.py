"""Connections to a listener: who does not read, who says nothing, and who comes too often harm nobody else."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from serve_app.api.http.connections import ConnectionLimits, HttpConnections
from serve_app.api.http.protocol import BoundedProtocol
from tests.unit.serve_app.api.listening import (
    CLOSING,
    HOST,
    KEEPING,
    Gate,
    answer_to,
    listening,
    on_a_loop,
    stopped_after_a_few_bytes,
    until,
)


class One(HttpConnections):
    most = 1


class TwoOfAnAddress(HttpConnections):
    most_by_address = 2


class LeavingSoon(BoundedProtocol):
    leaving_s = 0.4


class Endless:
    """An application that says as much as it may, until its client leaves."""

    def __init__(self) -> None:
        self.under_way = 0

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        self.under_way += 1
        saying = asyncio.create_task(self._say(send))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            saying.cancel()
            self.under_way -= 1

    async def _say(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 4096, "more_body": True})
            await asyncio.sleep(0)


async def taken(client: socket.socket, least_bytes: int) -> bool:
    """Read on, until so much has come; False: not before the connection's end."""
    while least_bytes > 0:
        part = await asyncio.get_running_loop().sock_recv(client, 2**18)
        if not part:
            return False
        least_bytes -= len(part)
    return True


async def say_at_once(_: Scope, __: Receive, send: Send) -> None:
    """An application whose answer is made before it is read."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * (8 * 2**20)})


@on_a_loop
async def test_the_oldest_connection_that_says_nothing_gives_way_to_a_new_one() -> None:
    gate, cut = Gate(), list[str]()
    gate.open.set()
    async with listening(gate, connections=One(cut=cut.append)) as server:
        silent, unused = await asyncio.open_connection(HOST, server.address.port)
        assert (await answer_to(server, CLOSING)).startswith(b"HTTP/1.1 204")
        assert await silent.read() == b""
        kept, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(KEEPING)
        await kept.readuntil(b"\r\n\r\n")
        assert (await answer_to(server, CLOSING)).startswith(b"HTTP/1.1 204"), "idle between two requests is silent"
        assert await kept.read() == b""
        for each in (unused, writer):
            each.close()
    assert cut == ["full", "full"]


@on_a_loop
async def test_a_client_that_has_not_taken_its_answer_does_not_give_way() -> None:
    cut = list[str]()
    async with listening(say_at_once, connections=One(cut=cut.append)) as server:
        slow = await stopped_after_a_few_bytes(server)
        assert await answer_to(server, CLOSING) == b"", "there is no room"
        assert await taken(slow, 8 * 2**20)
        slow.close()
    assert cut == ["full"]


@on_a_loop
async def test_a_request_that_waits_behind_another_on_its_connection_does_not_give_way() -> None:
    answers, entries = asyncio.Semaphore(1), list[Scope]()

    async def answer(scope: Scope, _: Receive, send: Send) -> None:
        entries.append(scope)
        await answers.acquire()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with listening(answer, connections=One()) as server:
        reader, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(KEEPING * 2)
        await until(lambda: len(entries) == 2)
        assert await answer_to(server, CLOSING) == b"", "there is no room"
        answers.release()
        for _ in range(2):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.close()


@on_a_loop
async def test_so_many_requests_may_wait_on_a_connection() -> None:
    for number, answers in ((17, 17), (18, 0), (10_000, 0)):
        gate = Gate()
        async with listening(gate) as server:
            asked = asyncio.create_task(answer_to(server, KEEPING * (number - 1) + CLOSING))
            await until(lambda gate=gate: gate.entries)  # type: ignore[misc]
            gate.open.set()
            assert (await asked).count(b"HTTP/1.1 204") == answers


@on_a_loop
async def test_one_address_has_so_many_connections_and_others_are_let_in_beside_it() -> None:
    gate = Gate()
    connections = TwoOfAnAddress(lambda: ConnectionLimits(shared=("127.0.0.2",)))
    async with listening(gate, connections=connections) as server:
        asked = [asyncio.create_task(answer_to(server, CLOSING)) for _ in range(2)]
        await until(lambda: gate.entries == 2)
        assert await answer_to(server, CLOSING) == b"", "they are answered, so none gives way"
        beside = [
            await asyncio.open_connection(HOST, server.address.port, local_addr=(f"127.0.0.{last}", 0))
            for last in (2, 2, 2, 2, 3)
        ]
        for _, writer in beside:
            writer.write(CLOSING)
        await until(lambda: gate.entries == 7)
        gate.open.set()
        for answered in [await reader.read() for reader, _ in beside] + list(await asyncio.gather(*asked)):
            assert answered.startswith(b"HTTP/1.1 204")
        for _, writer in beside:
            writer.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_takes_nothing_of_its_response_loses_the_connection(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test() -> None:
        app, cut = Endless(), list[str]()
        limits = ConnectionLimits(reader_s=0.8)
        async with listening(app, connections=HttpConnections(lambda: limits, cut.append)) as server:
            deaf = [await stopped_after_a_few_bytes(server) for _ in range(40)]
            reader, writer = await asyncio.open_connection(HOST, server.address.port)
            writer.write(KEEPING)
            while app.under_way > 1 or len(cut) < 40:
                assert await reader.read(2**16), "who reads is served"
            assert cut == ["reader"] * 40
            for one in deaf:
                one.close()
            writer.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(test(), 60))


@on_a_loop
async def test_who_reads_slowly_is_waited_for() -> None:
    app, cut = Endless(), list[str]()
    limits = ConnectionLimits(reader_s=2.0)
    async with listening(app, connections=HttpConnections(lambda: limits, cut.append)) as server:
        slow = await stopped_after_a_few_bytes(server)
        for _ in range(12):
            await asyncio.sleep(0.4)
            slow.recv(2**18)
        assert (app.under_way, cut) == (1, [])
        slow.close()


@on_a_loop
async def test_a_response_that_was_said_whole_is_not_kept_for_ever_for_who_does_not_read_it() -> None:
    cut = list[str]()
    limits = ConnectionLimits(reader_s=0.4)
    async with listening(say_at_once, connections=HttpConnections(lambda: limits, cut.append)) as server:
        deaf = await stopped_after_a_few_bytes(server, CLOSING)
        await until(lambda: cut)
        assert cut == ["reader"]
        deaf.close()


@on_a_loop
async def test_a_server_that_ends_does_not_wait_for_who_does_not_read() -> None:
    app, cut = Endless(), list[str]()
    async with listening(app, protocol=LeavingSoon, connections=HttpConnections(cut=cut.append)) as server:
        deaf = await stopped_after_a_few_bytes(server)
        await asyncio.sleep(0.5)
        assert cut == []
        await server.close()
    assert (app.under_way, cut) == (0, ["reader"])
    deaf.close()


@pytest.mark.parametrize(
    "fields",
    [
        b"x-long: %s\r\n" % (b"x" * 70_000),
        b"%s: y\r\n" % (b"x" * 70_000),
        b"x: y\r\n" * 101,
        b"x: y\r\n" * 5_000,
        b"x: y\r\n" * 50_000,
    ],
    ids=["value", "name", "a few too many", "many", "very many"],
)
def test_a_head_that_comes_in_one_piece_is_bounded_as_well(fields: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        gate = Gate()
        gate.open.set()
        async with listening(gate) as server:
            answer = await answer_to(server, b"GET / HTTP/1.1\r\nhost: outrider\r\n" + fields + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 431") or not answer, "reset while it was still sent"
        assert gate.entries == 0

    test()


def test_closed_connections_leave_nothing_behind() -> None:
    class Client:
        ended = False

        def give_way(self) -> None:
            self.ended = True

    all_there_are = TwoOfAnAddress(lambda: ConnectionLimits(shared=()))
    one, two, three = Client(), Client(), Client()
    assert all_there_are.open(one, "192.0.2.1")
    assert all_there_are.open(two, "192.0.2.1")
    all_there_are.spoke(one)
    assert all_there_are.open(three, "192.0.2.1"), "one is answered, two gives way"
    assert (one.ended, two.ended) == (False, True)
    for client in (one, two, three):
        all_there_are.fell_silent(client)
        all_there_are.close(client)
        all_there_are.close(client)
        all_there_are.spoke(client)
    assert vars(all_there_are)["_peers"] == vars(all_there_are)["_of"] == vars(all_there_are)["_silent"] == {}
