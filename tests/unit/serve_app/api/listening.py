"""A real listener over an application of a test, and clients of real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.api.http.connections import HttpConnections
from serve_app.api.http.listener import Address, Listening, listen
from serve_app.api.http.protocol import BoundedProtocol

HOST = "127.0.0.1"
KEEPING = b"GET / HTTP/1.1\r\nhost: outrider\r\n\r\n"
CLOSING = b"GET / HTTP/1.1\r\nhost: outrider\r\nconnection: close\r\n\r\n"


class Gate:
    """An application that reads what it is sent, and answers once it is let through."""

    def __init__(self) -> None:
        self.open, self.entered = asyncio.Event(), asyncio.Event()
        self.entries = 0
        self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.entered.set()
        self.entries += 1
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        self.left += message["type"] == "http.disconnect"
        await self.open.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


@asynccontextmanager
async def listening(
    app: ASGIApp,
    port: int = 0,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    connections: HttpConnections | None = None,
) -> AsyncIterator[Listening]:
    """Close it in the end; a gate is opened for that."""
    listening = listen(app, Address(HOST, port or free_port()), protocol, connections)
    try:
        yield listening
    finally:
        if isinstance(app, Gate):
            app.open.set()
        await listening.close()


def url_of(listening: Listening) -> str:
    """Of its root."""
    return f"http://{HOST}:{listening.address.port}/"


async def answer_to(listening: Listening, *parts: bytes, then: asyncio.Event | None = None) -> bytes:
    """What the server sends until it closes the connection; ``then`` is set once the parts are sent."""
    reader, writer = await asyncio.open_connection(HOST, listening.address.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then is not None:
            then.set()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def stopped_after_a_few_bytes(listening: Listening, request: bytes = KEEPING) -> socket.socket:
    """A client that asks, reads the beginning of the answer and no more; it has little room for the rest."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (HOST, listening.address.port))
    await loop.sock_sendall(client, request)
    assert (await loop.sock_recv(client, 20)).startswith(b"HTTP/1.1 200")
    return client


async def until(holds: Callable[[], object]) -> None:
    """Look again and again."""
    while not holds():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.01)


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test that is a coroutine, within a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    return lambda: asyncio.run(bounded())
