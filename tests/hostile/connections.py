"""Connections that are slow, silent, many, half closed, or not read from; each scenario lasts for seconds."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator

from tests.hostile.cases import MODEL, Case, Target, worst
from tests.hostile.promises import Family
from tests.hostile.raw_http import CLOSED, SILENT, Answer, ask, connect, head_of

_LASTS_S, _SHORT_S = 12.0, 4.0
_ROUTE = "/v1/completions"
_OPENED_AT_ONCE = 100
_LONG_TOKEN = 45855  # of the embedded model's longest: 80 characters
_READER_BUFFER_BYTES = 4096


async def together(one: Callable[[], Awaitable[Answer]], count: int, lasts_s: float) -> list[Answer]:
    """Do something as often at once, and cut what has not ended by then; what did is returned."""
    tasks: list[asyncio.Task[Answer]] = []
    until_s = time.monotonic() + lasts_s
    for number in range(count):
        tasks.append(asyncio.ensure_future(one()))
        if number % _OPENED_AT_ONCE == _OPENED_AT_ONCE - 1:
            await asyncio.sleep(0.02)
    await asyncio.wait(tasks, timeout=max(0.1, until_s - time.monotonic()))
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in ended if isinstance(each, Answer)]


async def silent(target: Target) -> Answer:
    """Connect and send nothing."""
    began_s = time.monotonic()
    with contextlib.suppress(OSError, EOFError):
        async with connect(target.port) as (reader, _):
            await reader.read(1)
    return Answer(0, CLOSED, time.monotonic() - began_s)


async def slow_head(target: Target) -> Answer:
    """A byte of a head at a time."""
    return await _dripped(target, head_of(_ROUTE, target.key, 10))


async def slow_body(target: Target) -> Answer:
    """A byte of a body at a time."""
    return await _dripped(target, b"{" + b" " * 1000, head_of(_ROUTE, target.key, 4_000_000))


async def _dripped(target: Target, content: bytes, before: bytes = b"") -> Answer:
    began_s = time.monotonic()
    try:
        async with connect(target.port) as (reader, writer):
            reading = asyncio.ensure_future(reader.read(1000))
            try:
                writer.write(before)
                for byte in content:
                    writer.write(bytes([byte]))
                    done, _ = await asyncio.wait([reading], timeout=0.5)
                    if done:
                        break
                head = await reading
            finally:
                reading.cancel()
    except (OSError, EOFError):
        head = b""
    status = int(head[9:12]) if head[9:12].isdigit() else 0
    return Answer(status, "" if status else CLOSED, time.monotonic() - began_s)


async def not_reading(target: Target) -> Answer:
    """Ask for a long answer with much told of it, and read nothing."""
    body = json.dumps(
        {"model": MODEL, "prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True, "logprobs": 20}
        | {"outrider": {"details": True}}
    ).encode()
    return await _unread(target, _ROUTE, body)


async def not_reading_a_text(target: Target) -> Answer:
    """Have a million characters spelled, and read nothing."""
    return await _unread(target, "/detokenize", json.dumps({"tokens": [_LONG_TOKEN] * 13_000}).encode())


async def _unread(target: Target, path: str, body: bytes) -> Answer:
    began_s = time.monotonic()
    with contextlib.suppress(OSError, EOFError):
        async with connect(target.port, _READER_BUFFER_BYTES) as (reader, writer):
            reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001 (asyncio reads ahead)
            writer.write(head_of(path, target.key, len(body)) + body)
            await asyncio.sleep(3600)
    return Answer(0, CLOSED, time.monotonic() - began_s)


async def half_closed(target: Target) -> Answer:
    """Ask for a stream, and send no more."""
    body = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 8, "stream": True}).encode()
    return await ask(target.port, [head_of(_ROUTE, target.key, len(body)) + body], 60.0, half_close=True)


async def cut_at_once(target: Target) -> Answer:
    """Ask for a stream, and go, again and again."""
    body = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 500, "stream": True}).encode()
    answer = Answer(0, SILENT, 0.0)
    for _ in range(20):
        with contextlib.suppress(OSError, EOFError):
            async with connect(target.port) as (_, writer):
                writer.write(head_of(_ROUTE, target.key, len(body)) + body)
                await asyncio.sleep(0.05)
    return answer


async def pipelined(target: Target) -> Answer:
    """Thousands of requests in one write, without a key."""
    return await ask(target.port, [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 7000] * 20, 20.0)


async def waiting_to_continue(target: Target) -> Answer:
    """Announce a body, ask whether to send it, and do not."""
    return await _held(target, head_of(_ROUTE, target.key, 4_000_000, more=["Expect: 100-continue"]))


async def upgrading(target: Target) -> Answer:
    """Offer h2c, announce a body, and send none."""
    return await _held(target, head_of(_ROUTE, target.key, 4_000_000, more=["Connection: Upgrade", "Upgrade: h2c"]))


async def _held(target: Target, head: bytes) -> Answer:
    began_s = time.monotonic()
    with contextlib.suppress(OSError, EOFError):
        async with connect(target.port) as (reader, writer):
            writer.write(head)
            while await reader.read(1000):
                pass
    return Answer(0, CLOSED, time.monotonic() - began_s)


async def packed_names(target: Target) -> Answer:
    """A body in gzip whose name has no end, as fast as it is taken: nothing of it ever unpacks."""
    head = head_of(_ROUTE, target.key, None, more=["Content-Encoding: gzip", "Transfer-Encoding: chunked"])
    chunk = b"10000\r\n" + b"n" * 65_536 + b"\r\n"
    packed = b"a\r\n\x1f\x8b\x08\x08" + bytes(4) + b"\x00\x03\r\n"
    return await ask(target.port, itertools.chain([head + packed], itertools.repeat(chunk)), _LASTS_S)


async def old_clients(target: Target) -> Answer:
    """Ask for a stream in HTTP/1.0, and send no more."""
    body = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 8, "stream": True}).encode()
    head = head_of(_ROUTE, target.key, len(body)).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    return await ask(target.port, [head + body], 60.0, half_close=True)


_SCENARIOS: dict[str, tuple[Callable[[Target], Awaitable[Answer]], int]] = {
    "4,300 connections that say nothing": (silent, 4300),
    "500 heads, a byte at a time": (slow_head, 500),
    "1,300 bodies, a byte at a time": (slow_body, 1300),
    "40 streams that nobody reads": (not_reading, 40),
    "40 spelled texts that nobody reads": (not_reading_a_text, 40),
    "40 streams of half-closed connections": (half_closed, 40),
    "20 clients that ask and go": (cut_at_once, 20),
    "500 that wait to be told to continue": (waiting_to_continue, 500),
    "500 that offer h2c and send no body": (upgrading, 500),
    "20 bodies in gzip that never unpack": (packed_names, 20),
    "40 half-closed streams in HTTP/1.0": (old_clients, 40),
    "64 connections of 7,000 requests at once": (pipelined, 64),
}
_SHORT = frozenset({"1,300 bodies, a byte at a time", "64 connections of 7,000 requests at once"})


def cases() -> Iterator[Case]:
    """Each for some seconds; an answer is of no matter, as most have none."""
    for name, (one, count) in _SCENARIOS.items():
        yield Case(Family.CONNECTIONS, name, _scenario(one, count, name in _SHORT), name in _SHORT, may_fail=True)


def _scenario(
    one: Callable[[Target], Awaitable[Answer]], count: int, short: bool
) -> Callable[[Target], Awaitable[Answer]]:
    async def drive(target: Target) -> Answer:
        ended = await together(lambda: one(target), count, _SHORT_S if short else _LASTS_S)
        return worst(ended) if ended else Answer(0, SILENT, 0.0)

    return drive
