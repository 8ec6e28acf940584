"""Whoever dials in to a gateway: strangers, devices with a certificate or key of their own that break the contract.

An honest device drafts meanwhile. After each case it has to be ready still, as the process that it was.
"""

import asyncio
import contextlib
import itertools
import os
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import aiohttp

from outrider.versions import DIAL_VERSIONS, VERSIONS, VersionRange
from outrider.wire.dialling import (
    DEVICE_PATH,
    FILES_PATH,
    SUBPROTOCOL,
    Bye,
    DeviceReady,
    FromDevice,
    Hello,
    NumberedReply,
    RefusalCode,
    Refused,
    Welcome,
    read_from_gateway,
    write_dialled,
)
from outrider.wire.replies import Answer as Reply
from outrider.wire.replies import DrafterCard, plain
from outrider.wire.short_forms import write_reply
from tests.chaos.mutating import mutated_bytes
from tests.hostile.cases import Case, Target
from tests.hostile.gateway import HONEST, DialIn
from tests.hostile.promises import Family, Figure
from tests.hostile.raw_http import CLOSED, HOSTILE_HOST, SILENT, Answer

_LASTS_S, _ANSWERS_WITHIN_S = 8.0, 10.0
_READY_WITHIN_S = 120.0
_CONNECTS_WITHIN_S, _PAUSE_S = 30.0, 0.3
_REVOKED_WITHIN_S = 13.0  # the file is read every 10 s, and has to be the same for one
_MOST_FILES_OF_ONE = 16
_MIB = 2**20
_FRESH = itertools.count()
_CARD = plain(DrafterCard("onnx", "model", "tokens", 49_152, (0,), 2048))
_SOUND = (
    write_dialled(DeviceReady(_CARD)),
    write_dialled(NumberedReply(1, plain(Reply(b"block", 0.1)))),
    write_reply(NumberedReply(1, plain(Reply(b"block", 0.1)))),
    write_dialled(Bye()),
    write_dialled(Hello(DIAL_VERSIONS, VERSIONS, "0.1.0", b"process.", 1, "laptop")),
)
Drive = Callable[[Target, DialIn], Awaitable[str]]  # returns what the device was told, or ``closed``


def cases() -> Iterator[Case]:
    short = {"replies that nobody asked for", "certificates that do not count"}
    for name, drive in _DRIVEN.items():
        yield Case(Family.DIALS, name, _beside_the_honest(drive), name in short, may_fail=True)


def _beside_the_honest(drive: Drive) -> Callable[[Target], Awaitable[Answer]]:
    async def driven(target: Target) -> Answer:
        dial_in = target.service.layout.dial_in
        assert dial_in is not None, "it was started with a gateway"
        before = await _honest(target)
        if before is None:
            target.wrong.append("the honest device did not become ready: nothing was driven")
            return Answer(0, SILENT, 0.0)
        began_s = time.monotonic()
        try:
            await _may_connect(dial_in)
            told = await drive(target, _with_another_key(dial_in))
        except (OSError, aiohttp.ClientError) as error:
            told = CLOSED
            target.wrong.append(f"was cut off where it should not be: {error!r:.200}")
        answer = Answer(0, told, time.monotonic() - began_s)
        if await _honest(target) != before:
            target.wrong.append("the honest device is not where it was")
        return answer

    return driven


def _with_another_key(dial_in: DialIn) -> DialIn:
    return replace(dial_in, hostile=f"m{next(_FRESH) % 64}")


async def _may_connect(dial_in: DialIn) -> None:
    """Wait until connections of the case before, which count against this address, have ended."""
    until_s = time.monotonic() + _CONNECTS_WITHIN_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            async with dialled(dial_in):
                return
        await asyncio.sleep(_PAUSE_S)


async def _honest(target: Target) -> str | None:
    """Return the drafter that the honest device is, once it is ready."""
    until_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < until_s:
        answer = await asyncio.to_thread(target.service.get, "/status")
        known = answer.json().get("drafters", []) if answer is not None and answer.is_success else []
        for drafter in known:
            if (drafter.get("dialled") or {}).get("device") == HONEST and drafter["state"] == "ready":
                return str(drafter["name"])
        await asyncio.sleep(0.5)
    return None


class Hostile:
    """One connection's upgraded side."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def hello(self, **more: Any) -> str:
        """Say hello; return ``welcome``, the code of a refusal, or ``closed``."""
        hello = Hello(DIAL_VERSIONS, VERSIONS, "0.1.0", os.urandom(8), 1, "hostile")
        return await self.said(write_dialled(replace(hello, **more)))

    async def said(self, data: bytes) -> str:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            await self.stream.send_bytes(data)
        return await self.told()

    async def say(self, message: FromDevice) -> None:
        """Say it, if it is still listened to."""
        with contextlib.suppress(OSError, aiohttp.ClientError):
            await self.stream.send_bytes(write_dialled(message))

    async def told(self) -> str:
        """Return what the gateway says next but calls; ``silent``: nothing in time."""
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                async for message in self.stream:
                    found = read_from_gateway(message.data) if isinstance(message.data, bytes) else None
                    if isinstance(found, Refused):
                        return str(found.code)
                    if isinstance(found, Welcome):
                        return "welcome"
        except TimeoutError:
            return SILENT
        return CLOSED

    @property
    def transport(self) -> Any:
        connection = self.stream._response.connection  # noqa: SLF001 (no public way)
        if connection is None:
            raise ConnectionResetError("it is closed")
        return connection.transport


@contextlib.asynccontextmanager
async def dialled(dial_in: DialIn, name: str = "") -> AsyncIterator[Hostile]:
    """Open a WebSocket by a key, or by the certificate of this name where there is one."""
    name = name or dial_in.hostile
    connector = aiohttp.TCPConnector(force_close=True, local_addr=(HOSTILE_HOST, 0))
    headers = {"Authorization": f"Bearer {dial_in.keys[name]}"} if name in dial_in.keys else {}
    async with aiohttp.ClientSession(connector=connector) as client:
        url = f"wss://127.0.0.1:{dial_in.port}{DEVICE_PATH}"
        context = dial_in.context(name)
        async with client.ws_connect(url, ssl=context, headers=headers, protocols=(SUBPROTOCOL,)) as stream:
            yield Hostile(stream)


async def _expects(target: Target, expected: str, told: str) -> None:
    if told != expected:
        target.wrong.append(f"needs {expected}, found {told}")


async def _half_open(_target: Target, dial_in: DialIn) -> str:
    """More handshakes than may be under way, of which none goes on."""
    opened = list[asyncio.StreamWriter]()
    for number in range(700):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", dial_in.port, local_addr=(HOSTILE_HOST, 0))
            writer.write(b"\x16\x03\x01\x02\x00\x01")
            opened.append(writer)
        if number % 50 == 0:
            await asyncio.sleep(0.01)
    await asyncio.sleep(_LASTS_S)
    for writer in opened:
        writer.close()
    return CLOSED


async def _dials(_target: Target, dial_in: DialIn) -> str:
    """Open and close, as fast as one process can."""
    until_s = time.monotonic() + _LASTS_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", dial_in.port, local_addr=(HOSTILE_HOST, 0))
            writer.close()
    return CLOSED


async def _no_hello(_: Target, dial_in: DialIn) -> str:
    async def silent() -> str:
        try:
            async with dialled(dial_in) as device:
                return await device.told()
        except (OSError, aiohttp.ClientError):
            return CLOSED

    told = await asyncio.gather(*(silent() for _ in range(100)))
    return max(set(told), key=told.count)


async def _certificates(target: Target, dial_in: DialIn) -> str:
    """Of another CA, expired, of a clock that is ahead, and revoked: only the last is one that is told so."""
    for name in ("stranger", "expired", "early"):
        try:
            async with dialled(dial_in, name) as device:
                target.wrong.append(f"{name} was told {await device.hello()}")
        except (OSError, aiohttp.ClientError, ssl.SSLError):
            pass
    async with dialled(dial_in, "revoked") as device:
        await _expects(target, RefusalCode.REVOKED, told := await device.told())
    return told


async def _anothers_name(target: Target, dial_in: DialIn) -> str:
    """A key of one's own, and the name of another device: it is somebody else all the same."""
    async with dialled(dial_in) as device:
        await _expects(target, "welcome", told := await device.hello(name=HONEST))
        await device.say(Bye())
    return told


async def _versions(target: Target, dial_in: DialIn) -> str:
    newer = VersionRange(DIAL_VERSIONS.newest + 1, DIAL_VERSIONS.newest + 2)
    told = ""
    for more in (
        {"dial_versions": newer},
        {"versions": replace(VERSIONS, protocol=VersionRange(1, 1))},
        {"versions": replace(VERSIONS, noise=VersionRange(90, 91))},
    ):
        async with dialled(dial_in) as device:
            await _expects(target, RefusalCode.VERSION, told := await device.hello(**more))
    async with dialled(dial_in) as device:  # a later release that knows this one's, too
        both = VersionRange(DIAL_VERSIONS.oldest, DIAL_VERSIONS.newest + 1)
        await _expects(target, "welcome", await device.hello(dial_versions=both, release="9.9"))
        await device.say(Bye())
    return told


async def _giant(target: Target, dial_in: DialIn) -> str:
    """64 MiB in one frame, before the hello and behind it."""
    told = ""
    for is_late in (False, True):
        async with dialled(dial_in) as device:
            if is_late:
                await _expects(target, "welcome", await device.hello())
            transport = device.transport
            transport.write(b"\x82" + struct.pack(">BQ", 0x80 | 127, 64 * _MIB) + bytes(4))
            for _ in range(64):
                if transport.is_closing():
                    break
                transport.write(bytes(_MIB))
                await asyncio.sleep(0.01)
            told = await device.told()
            if told in ("welcome", SILENT):
                target.wrong.append(f"64 MiB were answered with {told}")
    return told


async def _broken_after_ready(target: Target, dial_in: DialIn, write: Callable[[Hostile], Awaitable[None]]) -> str:
    """Break the contract as a device that is ready; it has to be told, or cut off."""
    async with dialled(dial_in) as device:
        told = await device.hello()
        await _expects(target, "welcome", told)
        await device.say(DeviceReady(_CARD))
        with contextlib.suppress(OSError, aiohttp.ClientError):
            await write(device)
        told = await device.told()
    if told in ("welcome", SILENT):
        target.wrong.append(f"a breach was answered with {told}")
    return told


async def _unasked(target: Target, dial_in: DialIn) -> str:
    async def write(device: Hostile) -> None:
        for number in range(5000):
            await device.stream.send_bytes(write_dialled(NumberedReply(7919 + number, bytes(200))))

    return await _broken_after_ready(target, dial_in, write)


async def _pings(target: Target, dial_in: DialIn) -> str:
    async def write(device: Hostile) -> None:
        for _ in range(20_000):
            await device.stream.ping(b"?" * 100)

    return await _broken_after_ready(target, dial_in, write)


async def _text(target: Target, dial_in: DialIn) -> str:
    async def write(device: Hostile) -> None:
        await device.stream.send_str("x" * _MIB)

    return await _broken_after_ready(target, dial_in, write)


async def _lying_card(target: Target, dial_in: DialIn) -> str:
    async def write(device: Hostile) -> None:
        await device.stream.send_bytes(bytes([3]) + b"[" * 60_000)

    return await _broken_after_ready(target, dial_in, write)


async def _mutated(target: Target, dial_in: DialIn) -> str:
    """What is no message, on connections that were let in: each is cut off, and nothing is told but refusals."""
    rng, counts, until_s = Random(time.time_ns()), dict[str, int](), time.monotonic() + 4 * _LASTS_S
    while time.monotonic() < until_s:
        try:
            await asyncio.sleep(_PAUSE_S)
            async with dialled(_with_another_key(dial_in)) as device:  # a breach keeps the last one out
                told = await device.hello()
                for _ in range(50):
                    if told != "welcome":
                        break
                    await device.stream.send_bytes(mutated_bytes(rng, rng.choice(_SOUND), rng.choice(_SOUND)))
        except (OSError, aiohttp.ClientError):
            told = CLOSED
        counts[told] = counts.get(told, 0) + 1
    if not counts.get("welcome"):
        target.wrong.append(f"none was let in: {counts}")
    return str(counts)


async def _slow_reader(_: Target, dial_in: DialIn) -> str:
    """Devices that are ready, and read nothing of what they are asked."""
    async with contextlib.AsyncExitStack() as stack:
        devices = [await stack.enter_async_context(dialled(dial_in)) for _ in range(8)]
        told = [await device.hello(name=f"slow{number}") for number, device in enumerate(devices)]
        for device in devices:
            await device.say(DeviceReady(_CARD))
            with contextlib.suppress(OSError):
                device.transport.pause_reading()
        await asyncio.sleep(3 * _LASTS_S)
        for device in devices:
            with contextlib.suppress(OSError):
                device.transport.abort()  # a close would wait to be read
        return max(set(told), key=told.count)


async def _processes(_: Target, dial_in: DialIn) -> str:
    """Another process with each dial."""
    told, until_s = dict[str, int](), time.monotonic() + _LASTS_S
    while time.monotonic() < until_s:
        try:
            async with dialled(dial_in) as device:
                answer = await device.hello()
        except (OSError, aiohttp.ClientError):
            answer = CLOSED
        told[answer] = told.get(answer, 0) + 1
    return str(told)


async def _files(target: Target, dial_in: DialIn) -> str:
    """The drafter's file, asked for again and again and hardly read; and files that there are not."""
    async with dialled(dial_in) as device:
        await device.say(Hello(DIAL_VERSIONS, VERSIONS, "0.1.0", os.urandom(8), 1, "f"))
        found = read_from_gateway((await device.stream.receive()).data)
    digests = [found.file.hex()] * 60 if isinstance(found, Welcome) else []
    connector = aiohttp.TCPConnector(limit=0, force_close=True, local_addr=(HOSTILE_HOST, 0))
    headers, statuses = {"Authorization": f"Bearer {dial_in.keys[dial_in.hostile]}"}, list[int]()
    async with aiohttp.ClientSession(connector=connector) as client, contextlib.AsyncExitStack() as stack:
        for digest in (*digests, "0" * 64, "0" * 63, "../../etc/passwd"):
            url = f"https://127.0.0.1:{dial_in.port}{FILES_PATH}{digest}"
            with contextlib.suppress(OSError, aiohttp.ClientError):
                answer = await stack.enter_async_context(client.get(url, ssl=dial_in.context(""), headers=headers))
                statuses.append(answer.status)
        await asyncio.sleep(_LASTS_S)
        if statuses.count(200) > _MOST_FILES_OF_ONE:
            target.wrong.append(f"{statuses.count(200)} files were sent at once")
    return f"{statuses.count(200)} of {len(statuses)}"


async def _revoked(target: Target, dial_in: DialIn) -> str:
    """A device that was let in, and whose key is then taken out of the file."""
    async with dialled(dial_in, "leaver") as device:
        await _expects(target, "welcome", await device.hello())
        began_s = time.monotonic()
        dial_in.write_devices("leaver")
        try:
            async with asyncio.timeout(2 * _REVOKED_WITHIN_S):
                while (told := await device.told()) == SILENT:
                    pass
        except TimeoutError:
            told = SILENT
        target.figures[Figure.REVOKED_S] = max(0.0, time.monotonic() - began_s - _REVOKED_WITHIN_S)
        await _expects(target, RefusalCode.REVOKED, told)
    async with dialled(dial_in, "leaver") as device:
        await _expects(target, RefusalCode.UNKNOWN_IDENTITY, told := await device.told())
    dial_in.write_devices()
    return told


_DRIVEN: dict[str, Drive] = {
    "half-open handshakes": _half_open,
    "connections that are opened and closed": _dials,
    "a hundred without a hello": _no_hello,
    "certificates that do not count": _certificates,
    "another device's name": _anothers_name,
    "two versions": _versions,
    "a frame of 64 MiB": _giant,
    "replies that nobody asked for": _unasked,
    "20,000 pings": _pings,
    "text": _text,
    "a card of brackets": _lying_card,
    "mutated messages": _mutated,
    "devices that read nothing": _slow_reader,
    "a process with each dial": _processes,
    "its file again and again": _files,
    "a key that is revoked": _revoked,
}
