"""Devices in one process, as light as can be: ``python -m lab.bench.gateway.devices SOCKET NAME``.

They speak WebSocket frames of their own making, with the real messages in them, answer every call with one reply, and
wait before they dial again as ``edge`` does. They do not notice that a connection is silent.
"""

import asyncio
import os
import random
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.dial_failures import usual_wait_s, wait_range_s
from edge.dialled_link import DIAL_S, GatewayRefusedError
from lab.bench.gateway.pipes import put, reached, run, take
from lab.bench.gateway.rounds import CARD
from outrider.versions import DIAL_VERSIONS, VERSIONS
from outrider.wire.dialling import (
    DEVICE_PATH,
    SUBPROTOCOL,
    DeviceReady,
    Hello,
    NumberedCall,
    NumberedReply,
    Refused,
    Welcome,
    read_from_gateway,
    write_dialled,
)
from outrider.wire.short_forms import FIRST_SHORT_VERSION, CallHeads, write_reply

_BINARY, _PING, _PONG = 0x82, 0x89, 0x8A


@dataclass(frozen=True, slots=True)
class Crowd:
    """Devices of one process, and how they dial and answer."""

    numbers: range
    key_of: int  # how many devices have a key of theirs together
    keys: tuple[str, ...]
    addresses: tuple[tuple[str, int], ...]  # dialled in turn
    ca: Path
    reply: bytes
    draft_s: float = 0.0
    at_once: int = 64  # dials; in a storm all devices dial


class Device(asyncio.Protocol):
    """One device's process; a connection at a time."""

    def __init__(self, crowd: Crowd, number: int, counts: Counter[str]) -> None:
        self._crowd, self._number, self._counts = crowd, number, counts
        self._process, self._dials = os.urandom(8), 0
        self._transport: asyncio.Transport | None = None
        self._buffer, self._is_open, self._is_served = b"", False, False
        self._refused: Refused | None = None
        self._heads: CallHeads | None = None  # once the gateway has told a version that has some
        self._settled: asyncio.Future[None] | None = None  # welcome, refused or lost
        self._ended: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport, self._buffer, self._is_open, self._dials = transport, b"", False, self._dials + 1
        self._heads = None
        key = self._crowd.keys[self._number // self._crowd.key_of]
        transport.write(
            f"GET {DEVICE_PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n".encode()
        )

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 (interface)
        self._counts["served"] -= self._is_served
        self._is_served = False
        for one in (self._settled, self._ended):
            if one is not None and not one.done():
                one.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_open:
            _, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self._is_open, self._buffer = True, rest
            name = f"d{self._number}"
            self._send(write_dialled(Hello(DIAL_VERSIONS, VERSIONS, "bench", self._process, self._dials, name)))
        for kind, content in self._frames():
            if kind == _PING:
                self._frame(_PONG, content)
                self._counts["pings"] += 1
            elif kind == _BINARY:
                self._heard(content)

    def _heard(self, content: bytes) -> None:
        message = read_from_gateway(content) if self._heads is None else self._heads.read(content)
        if isinstance(message, NumberedCall):
            found = NumberedReply(message.number, self._crowd.reply)
            reply = write_dialled(found) if self._heads is None else write_reply(found)
            if self._crowd.draft_s:
                asyncio.get_running_loop().call_later(self._crowd.draft_s, self._send, reply)
            else:
                self._send(reply)
        elif isinstance(message, Welcome):
            self._heads = CallHeads() if message.version >= FIRST_SHORT_VERSION else None
            self._send(write_dialled(DeviceReady(CARD)))
            self._counts["served"] += 1
            self._is_served = True
            if self._settled is not None and not self._settled.done():
                self._settled.set_result(None)
        elif isinstance(message, Refused):
            self._refused = message
            self._counts[f"refused: {message.code}"] += 1

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        while len(self._buffer) >= 2:
            size, head = self._buffer[1], 2
            if size == 126 and len(self._buffer) >= 4:
                size, head = struct.unpack_from(">H", self._buffer, 2)[0], 4
            if len(self._buffer) < head + size:
                return
            kind, content = self._buffer[0], self._buffer[head : head + size]
            self._buffer = self._buffer[head + size :]
            yield kind, content

    def _send(self, data: bytes) -> None:
        self._frame(_BINARY, data)

    def _frame(self, kind: int, data: bytes) -> None:
        """Send a frame with a mask of zeros, which costs nothing to apply and has the size of any other."""
        if self._transport is None or self._transport.is_closing():
            return
        size = len(data)
        length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BH", 0x80 | 126, size)
        self._transport.write(bytes((kind,)) + length + bytes(4) + data)

    async def stay(self, context: ssl.SSLContext, dials: asyncio.Semaphore) -> None:
        """Dial, and again, for ever."""
        addresses, failures = [*self._crowd.addresses], 0
        while True:
            was_served, error = await self._dialled(addresses[0], context, dials)
            failures = 0 if was_served else failures + 1
            if not was_served:
                addresses.append(addresses.pop(0))
            usual_s = usual_wait_s(failures, len(addresses))
            await asyncio.sleep(random.uniform(*wait_range_s(error, usual_s)))  # noqa: S311 (spreads devices)

    async def _dialled(
        self, address: tuple[str, int], context: ssl.SSLContext, dials: asyncio.Semaphore
    ) -> tuple[bool, Exception]:
        """Stay at a gateway until the connection is lost; return whether it served this device, and what it said."""
        loop = asyncio.get_running_loop()
        self._settled, self._ended, self._refused = loop.create_future(), loop.create_future(), None
        was_served = False
        try:
            async with dials, asyncio.timeout(DIAL_S):
                await loop.create_connection(
                    lambda: self, *address, ssl=context, server_hostname=address[0], local_addr=(self._host(), 0)
                )
                await self._settled
            was_served = self._is_served
            await self._ended
        except (OSError, TimeoutError) as found:
            self._counts[f"failed: {type(found).__name__}"] += 1
            if self._transport is not None:
                self._transport.abort()
        if self._refused is not None:
            return was_served, GatewayRefusedError(self._refused)
        return was_served, OSError("lost")

    def _host(self) -> str:
        """Return an address of this machine that few others of these devices have."""
        return f"127.{1 + self._number // 2**15}.{self._number // 128 % 256}.{1 + self._number % 128}"


async def _serve(socket: Path, name: str) -> None:
    reader, writer = await reached(socket, name)
    crowd: Crowd = await take(reader)
    counts, context = Counter[str](), ssl.create_default_context(cafile=crowd.ca)
    dials = asyncio.Semaphore(crowd.at_once)
    staying = [asyncio.create_task(Device(crowd, number, counts).stay(context, dials)) for number in crowd.numbers]
    try:
        while True:
            await take(reader)  # it is asked how it goes
            put(writer, dict(counts))
    except asyncio.IncompleteReadError:
        for task in staying:
            task.cancel()


if __name__ == "__main__":
    run(_serve(Path(sys.argv[1]), sys.argv[2]))
