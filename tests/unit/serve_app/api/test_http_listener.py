"""A port of its own: a real server, asked over real sockets, by clients that are slow, or mean no good."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import httpx
import pytest
import uvloop

from serve_app.api.http.connections import HttpConnections
from serve_app.api.http.listener import Address, ListenerEndedError, listen
from serve_app.api.http.protocol import BoundedProtocol
from tests.unit.serve_app.api.listening import (
    CLOSING,
    HOST,
    KEEPING,
    Gate,
    answer_to,
    free_port,
    listening,
    on_a_loop,
    until,
    url_of,
)

HALF_A_HEAD = b"POST / HTTP/1.1\r\nhost: outrider\r\nx-long: "
HALF_A_BODY = b"POST / HTTP/1.1\r\nhost: outrider\r\ncontent-length: 10\r\n\r\nhalf"
IN_CHUNKS = b"POST / HTTP/1.1\r\nhost: outrider\r\ntransfer-encoding: chunked\r\n\r\n"


class HasteWithHeads(BoundedProtocol):
    head_s = 0.2


class HasteWithBodies(BoundedProtocol):
    body_s = 0.2


class OneConnection(HttpConnections):
    most = 1


@on_a_loop
async def test_it_listens_where_another_has_just_ended_with_clients_connected() -> None:
    port, gate = free_port(), Gate()
    gate.open.set()
    async with httpx.AsyncClient() as client:
        async with listening(gate, port) as server:
            await client.get(url_of(server))  # its connection stays open, so that the server is the one to close it
        async with listening(gate, port) as server:
            assert (await client.get(url_of(server))).status_code == httpx.codes.NO_CONTENT


def test_connections_that_wait_are_accepted_many_in_a_turn_of_the_loop() -> None:
    seen = list[int]()
    turn = 0

    class Noting(BoundedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            seen.append(turn)
            super().connection_made(transport)

    async def connect() -> None:
        nonlocal turn
        async with listening(Gate(), protocol=Noting) as server, AsyncExitStack() as clients:
            await until(lambda: server.server.started)
            for _ in range(48):
                clients.enter_context(socket.create_connection((HOST, server.address.port)))
            while len(seen) < 48:
                await asyncio.sleep(0)
                turn += 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as Serve has it
        runner.run(asyncio.wait_for(connect(), 60))
    assert max(seen) - min(seen) < 12


@on_a_loop
async def test_a_taken_port_is_an_error_of_whoever_asks_for_it() -> None:
    gate = Gate()
    gate.open.set()
    async with listening(gate) as server, httpx.AsyncClient() as client:
        await client.get(url_of(server))
        with pytest.raises(OSError, match="in use"):
            listen(Gate(), server.address)


@pytest.mark.parametrize("parts", [(), (HALF_A_HEAD,), (b"\r\n",)])
def test_a_client_that_sends_no_whole_head_loses_its_connection(parts: tuple[bytes, ...]) -> None:
    @on_a_loop
    async def test() -> None:
        async with listening(Gate(), protocol=HasteWithHeads) as server:
            assert await answer_to(server, *parts) == b""

    test()


@on_a_loop
async def test_what_is_no_request_does_not_keep_a_connection() -> None:
    gate = Gate()
    gate.open.set()
    async with listening(gate, protocol=HasteWithHeads) as server:
        reader, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(KEEPING)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.write(b"\r\n")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@on_a_loop
async def test_a_client_that_sends_no_whole_body_loses_its_connection_and_its_place() -> None:
    gate = Gate()
    async with listening(gate, protocol=HasteWithBodies) as server:
        assert await answer_to(server, HALF_A_BODY) == b""
        gate.open.set()
    assert gate.left == 1


@on_a_loop
async def test_a_response_may_take_longer_than_its_request() -> None:
    """Even if something follows the request, as a stray line's end does."""
    gate = Gate()
    async with listening(gate, protocol=HasteWithHeads) as server:
        reader, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(KEEPING)
        await gate.entered.wait()
        writer.write(b"\r\n")
        await asyncio.sleep(3 * HasteWithHeads.head_s)
        gate.open.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
        writer.close()


@on_a_loop
async def test_a_head_has_a_largest_size() -> None:
    gate = Gate()
    gate.open.set()
    async with listening(gate) as server:
        most = BoundedProtocol.head_bytes
        filled = HALF_A_HEAD + b"x" * (most - len(HALF_A_HEAD) - 4) + b"\r\n\r\n"
        async with httpx.AsyncClient() as client:
            response = await client.get(url_of(server), headers={"x-long": "x" * (most - 1000)})
            assert response.status_code == httpx.codes.NO_CONTENT
        assert (await answer_to(server, filled[:-4] + b"xxxxx")).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("start", [HALF_A_HEAD, IN_CHUNKS + b"1;", IN_CHUNKS + b"0\r\nx-long: "])
def test_what_surrounds_a_body_is_not_read_without_end(start: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        flooded = asyncio.Event()
        async with listening(Gate()) as server:
            await answer_to(server, start, b"x" * (512 * BoundedProtocol.head_bytes), then=flooded)
            assert not flooded.is_set(), "it closed before all was read"

    test()


@on_a_loop
async def test_a_body_may_be_larger_than_a_head() -> None:
    gate = Gate()
    gate.open.set()
    async with listening(gate) as server, httpx.AsyncClient() as client:
        for content in (b"x" * (40 * BoundedProtocol.head_bytes), pieces()):
            assert (await client.post(url_of(server), content=content)).status_code == httpx.codes.NO_CONTENT


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(20_000):
        yield b"x" * 200


@on_a_loop
async def test_connections_are_bounded() -> None:
    gate = Gate()
    async with listening(gate, connections=OneConnection()) as server:
        first = asyncio.create_task(answer_to(server, CLOSING))
        await gate.entered.wait()
        assert await answer_to(server, CLOSING) == b""
        gate.open.set()
        assert (await first).startswith(b"HTTP/1.1 204")
        assert (await answer_to(server, CLOSING)).startswith(b"HTTP/1.1 204"), "its place is free again"


@on_a_loop
async def test_closing_frees_the_port_at_once_and_waits_for_what_is_under_way() -> None:
    gate, port = Gate(), free_port()
    async with listening(gate, port) as server:
        asked = asyncio.create_task(answer_to(server, CLOSING))
        await gate.entered.wait()
        closing = asyncio.create_task(server.close())
        while True:
            try:
                listen(Gate(), server.address).server.should_exit = True
            except OSError:
                await asyncio.sleep(0.05)
            else:
                break
        assert not closing.done()
        gate.open.set()
        assert (await asked).startswith(b"HTTP/1.1 204")
        await closing


@on_a_loop
async def test_its_end_is_found_out_and_leaves_the_port_free() -> None:
    address = Address(HOST, free_port())
    for steps in (0, 1, 100):
        server = listen(Gate(), address)
        for _ in range(steps):
            await asyncio.sleep(0)
        server.check()
        server.task.cancel()
        await asyncio.wait([server.task])
        with pytest.raises(ListenerEndedError, match=f"needs a listener at {HOST}:{address.port}, found that it ended"):
            server.check()


@on_a_loop
async def test_signals_are_left_to_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)
    gate = Gate()
    gate.open.set()
    async with listening(gate) as server:
        await answer_to(server, CLOSING)
        assert signal.getsignal(signal.SIGTERM) is before
