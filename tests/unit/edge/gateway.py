"""A small gateway over TLS that speaks the contract, and a relay in front of it that can cut and lose connections."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Any

from aiohttp import WSMsgType, web

from outrider.versions import DIAL_VERSIONS
from outrider.wire.calls import write_call
from outrider.wire.dialling import (
    DEVICE_PATH,
    FILES_PATH,
    SUBPROTOCOL,
    Bye,
    DeviceReady,
    FromGateway,
    Hello,
    NumberedCall,
    NumberedReply,
    Refused,
    Welcome,
    read_from_device,
    write_dialled,
)
from outrider.wire.replies import DrafterCard, Reply, read_reply
from outrider.wire.short_forms import FIRST_SHORT_VERSION, CallHeads
from outrider.wire.short_forms import read_from_device as read_short_or_long

HOST = "127.0.0.1"


class Dialled:
    """A device's connection, from its hello on."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse, hello: Hello) -> None:
        assert request.transport is not None
        self.transport: Any = request.transport
        self.socket, self.hello = socket, hello
        self.card: asyncio.Future[DrafterCard] = asyncio.get_running_loop().create_future()
        self.said_bye, self.ended = False, asyncio.Event()
        self.heads: CallHeads | None = None
        self._replies: dict[int, asyncio.Future[Reply]] = {}

    async def send(self, message: FromGateway) -> None:
        await self.socket.send_bytes(write_dialled(message) if self.heads is None else self.heads.write(message))

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call, and wait for the reply."""
        number = len(self._replies)
        self._replies[number] = asyncio.get_running_loop().create_future()
        await self.send(NumberedCall(number, write_call(method, *arguments)))
        return await self._replies[number]

    async def read_on(self) -> None:
        """Read until the device leaves."""
        async for message in self.socket:
            if message.type is not WSMsgType.BINARY:
                break
            read = read_from_device if self.heads is None else read_short_or_long
            match read(message.data):
                case DeviceReady(card):
                    found = read_reply(card)
                    assert isinstance(found, DrafterCard)
                    self.card.set_result(found)
                case NumberedReply(number, reply) if number in self._replies:
                    try:
                        self._replies[number].set_result(read_reply(reply))
                    except Exception as error:  # noqa: BLE001 (whoever called raises it)
                        self._replies[number].set_exception(error)
                case Bye():
                    self.said_bye = True
                case _:
                    pass
        self.ended.set()


class Gateway:
    """``answer`` replaces what it says to a hello; ``cut_at`` ends the next answer with a file there."""

    def __init__(self, file: bytes) -> None:
        self.file, self.digest, self.told_bytes = file, hashlib.sha256(file).digest(), len(file)
        self.ping_s, self.version = 60.0, DIAL_VERSIONS.newest
        self.answer: Callable[[Dialled], Awaitable[None]] = self.welcome
        self.others: tuple[str, ...] = ()
        self.cut_at: int | None = None
        self.dials: list[Dialled] = []
        self.headers: list[dict[str, str]] = []  # of all requests
        self.ranges: list[str | None] = []  # of requests of files
        self._dialled = asyncio.Condition()
        self.port = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def welcome(self, dialled: Dialled, file: bytes | None = None) -> None:
        await dialled.send(
            Welcome(
                self.version,
                "edge/0",
                len(self.dials),
                file or self.digest,
                self.told_bytes,
                self.ping_s,
                10.0,
                self.others,
            )
        )
        dialled.heads = CallHeads() if self.version >= FIRST_SHORT_VERSION else None

    async def dial(self, number: int = 1) -> Dialled:
        """Wait for so many dials, and return the last of them."""
        async with self._dialled:
            await self._dialled.wait_for(lambda: len(self.dials) >= number)
        return self.dials[number - 1]

    async def served(self, number: int = 1) -> Dialled:
        """Wait until a device is ready after so many dials."""
        dialled = await self.dial(number)
        await dialled.card
        return dialled

    @asynccontextmanager
    async def listening(self, context: SSLContext) -> AsyncIterator["Gateway"]:
        application = web.Application()
        application.router.add_get(DEVICE_PATH, self._device)
        application.router.add_get(FILES_PATH + "{digest}", self._files)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, HOST, self.port, ssl_context=context)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            for dialled in self.dials:
                await _abort(dialled.socket)
            await runner.cleanup()

    async def _device(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), compress=False, max_msg_size=2**23)
        await socket.prepare(request)
        hello = read_from_device(await socket.receive_bytes())
        assert isinstance(hello, Hello)
        dialled = Dialled(request, socket, hello)
        async with self._dialled:
            self.dials.append(dialled)
            self._dialled.notify_all()
        with suppress(ConnectionError):
            await self.answer(dialled)
            await dialled.read_on()
        dialled.ended.set()
        return socket

    async def _files(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.ranges.append(request.headers.get("Range"))
        start = int(re.sub(r"\D", "", request.headers.get("Range", "0")))
        if start > len(self.file):
            return web.Response(status=416)
        headers = {"Content-Range": f"bytes {start}-{len(self.file) - 1}/{len(self.file)}"} if start else {}
        answer = web.StreamResponse(status=206 if start else 200, headers=headers)
        answer.content_length = len(self.file) - start
        await answer.prepare(request)
        end, self.cut_at = self.cut_at, None
        await answer.write(self.file[start:end])
        if end is not None:
            assert request.transport is not None
            request.transport.close()
        return answer


async def _abort(socket: web.WebSocketResponse) -> None:
    with suppress(Exception):
        await asyncio.wait_for(socket.close(), 0.2)


def refusing(refused: Refused) -> Callable[[Dialled], Awaitable[None]]:
    async def refuse(dialled: Dialled) -> None:
        await dialled.send(refused)
        await dialled.socket.close()

    return refuse


class Relay:
    """Carries bytes between a device and a gateway, as a network does."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self.port = gateway, 0
        self._writers: list[asyncio.StreamWriter] = []
        self._working: set[asyncio.Task[None]] = set()
        self._lost: set[asyncio.Task[None]] = set()
        self.flows = asyncio.Event()  # while it is not set all bytes wait
        self.flows.set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """As a network that breaks: nobody says goodbye."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def lose(self) -> None:
        """Carry nothing more of the present connections, and tell nobody: the device has another address now."""
        self._lost |= self._working

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Relay"]:
        server = await asyncio.start_server(self._carry, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._working, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, self._gateway.port)
        self._writers += [writer, back]
        pumps = [asyncio.create_task(self._pump(*way)) for way in ((reader, back), (there, writer))]
        self._working |= set(pumps)
        await asyncio.gather(*pumps)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(2**16):
                await self.flows.wait()
                if asyncio.current_task() not in self._lost:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
