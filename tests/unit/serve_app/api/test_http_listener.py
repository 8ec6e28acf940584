"""A port of its own: a real server, asked over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from serve_app.api.http.listener import Address, listen


class Gate:
    """An application that answers once it is let through."""

    def __init__(self) -> None:
        self.open, self.entered = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.entered.set()
        await self.open.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


@asynccontextmanager
async def listening(gate: Gate, port: int = 0) -> AsyncIterator[str]:
    port = port or free_port()
    task = listen(gate, Address("127.0.0.1", port))
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


@on_a_loop
async def test_it_listens_where_another_has_just_ended_with_clients_connected() -> None:
    port, gate = free_port(), Gate()
    gate.open.set()
    async with httpx.AsyncClient() as client:
        async with listening(gate, port) as url:
            await client.get(url)  # its connection stays open, so that the server is the one to close it
        async with listening(gate, port) as url:
            assert (await client.get(url)).status_code == httpx.codes.NO_CONTENT


@on_a_loop
async def test_a_taken_port_is_an_error_of_whoever_asks_for_it() -> None:
    gate = Gate()
    gate.open.set()
    async with listening(gate) as url, httpx.AsyncClient() as client:
        await client.get(url)
        with pytest.raises(OSError, match="in use"):
            listen(Gate(), Address("127.0.0.1", httpx.URL(url).port or 0))
