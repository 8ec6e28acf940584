"""HTTP/1.1 over plain sockets, so that what no library would send can be sent."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

HOST = "127.0.0.1"  # of the service, and of who is well behaved
HOSTILE_HOST = "127.0.0.2"  # another address of this machine, so that bounds for an address hold for the hostile alone
_MOST_ANSWER_BYTES = 2**20
_READ_BYTES = 2**20
_MOST_HEAD_BYTES = 4096
CLOSED = "closed"  # in the place of a status, where a connection ended without an answer
SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        status: of HTTP; 0 where there was none.
        code: of the error in OpenAI's form; or ``closed``, ``silent``.
        answered_s: from the first byte sent to the head of the answer, or to the end of the connection.
        head: the answer's, its beginning.
    """

    status: int
    code: str
    answered_s: float
    detail: str = ""
    head: str = ""

    @property
    def refused(self) -> bool:
        """Whether it asked for nothing that is done."""
        return not 200 <= self.status < 300


def head_of(path: str, key: str, length: int | None, method: str = "POST", more: Iterable[str] = ()) -> bytes:
    """A sound head; without ``length`` of a request without a body."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", "Content-Type: application/json", *more]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += [f"Content-Length: {length}"] if length is not None else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


@contextlib.asynccontextmanager
async def connect(
    port: int, receive_buffer_bytes: int = 0, source: str = HOSTILE_HOST
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection while the block is open; then it is cut."""
    plain = socket.socket()
    plain.setblocking(False)
    if receive_buffer_bytes:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    try:
        plain.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(plain, (HOST, port))
    except BaseException:
        plain.close()
        raise
    reader, writer = await asyncio.open_connection(sock=plain, limit=_MOST_ANSWER_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(port: int, parts: Iterable[bytes], within_s: float, *, half_close: bool = False) -> Answer:
    """Send bytes and read what is answered; the rest is not sent once there is an answer."""
    began_s = time.monotonic()
    try:
        async with connect(port) as (reader, writer):
            sending = asyncio.create_task(_send(writer, parts, half_close=half_close))
            try:
                async with asyncio.timeout(within_s):
                    head = await reader.readuntil(b"\r\n\r\n")
                    answered_s = time.monotonic() - began_s
                    told = _told(await _content(reader, head), answered_s)
                    return Answer(int(head[9:12]), *told, head[:_MOST_HEAD_BYTES].decode("latin-1"))
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
    except TimeoutError:
        return Answer(0, SILENT, time.monotonic() - began_s)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        return Answer(0, CLOSED, time.monotonic() - began_s, f"{error!r:.120}")


async def _send(writer: asyncio.StreamWriter, parts: Iterable[bytes], *, half_close: bool) -> None:
    for part in parts:
        writer.write(part)
        await writer.drain()
    if half_close:
        writer.write_eof()


async def _content(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The beginning of an answer's content, as far as it tells what the answer is."""
    lines = head.lower().split(b"\r\n")
    length = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), None)
    if length is None:
        return await reader.read(_READ_BYTES)
    return await reader.readexactly(min(length, _MOST_ANSWER_BYTES))


def _told(content: bytes, answered_s: float) -> tuple[str, float, str]:
    try:
        error = json.loads(content)["error"]
        return str(error["code"]), answered_s, f"{error['message']:.160}"
    except (ValueError, LookupError, TypeError):
        return "", answered_s, content[:80].decode(errors="replace")
