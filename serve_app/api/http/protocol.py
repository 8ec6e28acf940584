"""uvicorn's HTTP/1.1 with limits on what a client may use: time, bytes, connections.

It passes over offers to upgrade, frames answers for HTTP/1.0, and answers clients that have ended their side.
uvicorn limits only how long a connection is idle between two requests. Here a client that is slow to send a request,
never completes one, or takes no byte of its response for too long loses its connection.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import httptools
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serve_app.api.http.connections import HttpConnections

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"  # a client that has left answers it with a reset
_PROBE_S = 1.0
_PIECE_BYTES = 16 * 2**10  # given to the parser at a time: a read brings up to 256 KiB
_UNSENT_BYTES = 16 * 2**10  # of a response, buffered here and in the kernel each, beyond what the client has taken
_KEPT_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # s, s, probes
_KERNEL_LATER_S = 10.0  # the kernel's limit, later than ours: it ends vanished peers without counting them


class RefusedRequestError(ValueError):
    """Raised in the parser to stop it: a head is too large, or too many requests wait."""


class CountedTransport:
    """A transport that counts the bytes written to it and reports each write."""

    def __init__(self, transport: asyncio.Transport, wrote: Callable[[], None]) -> None:
        self._transport, self._wrote = transport, wrote
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._bytes += len(data)
        self._transport.write(data)
        self._wrote()

    @property
    def taken_bytes(self) -> int:
        """Bytes that the socket has accepted."""
        return self._bytes - self._transport.get_write_buffer_size()


class UpgradeIgnoringParser:
    """A parser that reads on, in HTTP/1.1, where a request offers another protocol (RFC 9110, section 7.8).

    The library ends a request with its head there: its body is lost. Java's HttpClient offers h2c with every request.
    """

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol, self._parser = protocol, protocol.parser
        self.is_between = False  # a head is parsed that is not the client's

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def should_upgrade(self) -> bool:
        """Never: no other protocol is spoken here."""
        return False

    @property
    def awaits_body(self) -> bool:
        """Whether the request whose head was just read has a body that a new parser will read."""
        return bool(self._parser.should_upgrade())

    def feed_data(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._read_on()
            else:
                return

    def _read_on(self) -> None:
        """Have a new parser read the body, framed as the request says."""
        self._parser = httptools.HttpRequestParser(self._protocol)
        framing = [
            (name, value) for name, value in self._protocol.headers if name in (b"content-length", b"transfer-encoding")
        ]
        fields = b"".join(b"%b: %b\r\n" % field for field in framing or [(b"content-length", b"0")])
        self.is_between = True
        try:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % fields)
        finally:
            self.is_between = False


class UnframedCycle(RequestResponseCycle):
    """A response to HTTP/1.0, which knows no chunks: one without a length ends with the connection."""

    _unframed = False

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._unframed = b"content-length" not in names
            if self._unframed:
                self.chunked_encoding = False
        elif self._unframed and message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class BoundedProtocol(HttpToolsProtocol):
    head_s: ClassVar = 20.0  # for the head of a request, and for a new connection to send one
    body_s: ClassVar = 60.0  # for the body, counted from the end of the head
    head_bytes: ClassVar = 64 * 2**10  # of a head; likewise of what follows or divides a body, such as trailers
    head_fields: ClassVar = 100  # header fields of a request, its trailers included
    waiting_requests: ClassVar = 16  # pipelined behind an unanswered one; a single read may bring 14,000
    leaving_s: ClassVar = 5.0  # replaces ``ConnectionLimits.reader_s`` while the server shuts down

    transport: Any

    def __init__(self, *args: Any, connections: HttpConnections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parsing = UpgradeIgnoringParser(self)
        self.parser = self._parsing  # type: ignore[assignment]  # all that is used
        self._all = connections or HttpConnections()
        self._deadline: asyncio.TimerHandle | None = None  # while input is awaited
        self._waits_for = "head"
        self._framing_bytes = 0  # since the last piece of a body or end of a request
        self._head_bytes = self._head_fields = 0
        self._head_is_refused = False
        self._reader: asyncio.TimerHandle | None = None  # while the socket has not accepted everything
        self._taken_bytes, self._taken_at_s = 0, 0.0  # accepted by the socket, when last observed to grow
        self._closing = False
        self._half_closed = False  # the client has ended its side, and may still read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's, too
        transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        _set_options(transport.get_extra_info("socket"), self._all.limits.reader_s)
        super().connection_made(CountedTransport(transport, self._wrote))  # type: ignore[arg-type]  # all that is used
        if self._all.open(self, self.client[0] if self.client else ""):
            self._await(self.head_s, "head")
        else:
            self._cut("full")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await_nothing()
        if self._reader is not None:
            self._reader.cancel()
        self._all.close(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data piece by piece; the parser calls the methods below."""
        if self._deadline is None:
            self._await(self.head_s, "head")
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._framing_bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing():
                return
            if self._framing_bytes > self.head_bytes:
                self._refuse()
                return

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's
        """Keep a connection whose client has sent all that it has to say, until it is answered.

        One that has left altogether looks the same. It is told by what it is sent: interim responses, which HTTP/1.0
        does not have, or the next pieces of a stream.
        """
        if not self._answers_whole_request() or self.cycle.scope["http_version"] != "1.1":
            return False
        self._half_closed = True
        self._probe()
        return True

    def on_message_begin(self) -> None:
        if self._parsing.is_between:
            return
        self._head_bytes = self._head_fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._parsing.is_between:
            return
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header field, or a trailer."""
        if self._parsing.is_between:
            return
        self._head_bytes += len(name) + len(value) + 4  # ": " and the end of the line
        self._head_fields += 1
        if self._head_bytes > self.head_bytes or self._head_fields > self.head_fields:
            self._head_is_refused = True
            raise RefusedRequestError
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        if self._head_is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        if self._parsing.is_between:
            return
        if len(self.pipeline) >= self.waiting_requests:
            self._head_is_refused = True
            raise RefusedRequestError
        self._all.spoke(self)
        super().on_headers_complete()
        if self.cycle.scope["http_version"] == "1.0":
            self.cycle.__class__ = UnframedCycle
            self.cycle.waiting_for_100_continue = False  # RFC 9110 10.1.1: such a client does not know the answer
        self._await(self.body_s, "body")

    def on_body(self, body: bytes) -> None:
        """Receive a piece of the body; the application counts its bytes."""
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting: the request is complete, and its response has no time limit."""
        if self._parsing.awaits_body:
            return
        self._framing_bytes = 0
        self._await_nothing()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed and not self.pipeline and self.cycle.response_complete:
            self.transport.close()
        self._fall_silent()

    def shutdown(self) -> None:
        """Shut down: wait for responses, but only ``leaving_s`` for a client that does not read."""
        self._closing = True
        super().shutdown()
        if self._reader is not None:
            self._watch_reader()

    def give_way(self) -> None:
        """Close the connection now, to make room for a new one."""
        self._cut("full")

    def _await(self, seconds: float, what: str) -> None:
        self._await_nothing()
        self._waits_for = what
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _await_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        if self._answers_whole_request():  # a whole request must not fail for what follows it
            self._await(self.head_s, "head")
        else:
            self._cut(self._waits_for)

    def _wrote(self) -> None:
        if self._reader is None and self.transport.get_write_buffer_size():
            self._taken_bytes, self._taken_at_s = self.transport.taken_bytes, self.loop.time()
            self._watch_reader_later()

    def _watch_reader(self) -> None:
        taken, now_s = self.transport.taken_bytes, self.loop.time()
        if taken > self._taken_bytes:
            self._taken_bytes, self._taken_at_s = taken, now_s
        if not self.transport.get_write_buffer_size():
            self._reader = None
            self._fall_silent()
        elif now_s - self._taken_at_s >= self._reader_s:
            self._cut("reader")
        else:
            self._watch_reader_later()

    def _watch_reader_later(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        self._reader = self.loop.call_later(self._reader_s / 4, self._watch_reader)

    @property
    def _reader_s(self) -> float:
        limit_s = self._all.limits.reader_s
        return min(limit_s, self.leaving_s) if self._closing else limit_s

    def _probe(self) -> None:
        """Write to a client that may have left: what answers with a reset fails the next write."""
        cycle = self.cycle
        if not (cycle.response_started or cycle.disconnected):
            self.transport.write(_PROBE)
            self.loop.call_later(_PROBE_S, self._probe)

    def _fall_silent(self) -> None:
        """Mark the connection silent if its last request is answered and the answer taken."""
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and not self.transport.get_write_buffer_size():
            self._all.fell_silent(self)

    def _cut(self, why: str) -> None:
        self._all.note_cut(why)
        self.transport.abort()

    def _refuse(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            self.transport.abort()

    def _answers_whole_request(self) -> bool:
        under_way = self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body)
        return under_way or bool(self.pipeline)


def _set_options(connected: socket.socket | None, reader_s: float) -> None:
    """Have the kernel detect vanished peers, and buffer little for slow ones."""
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    kernel_ms = round(1000 * (reader_s + _KERNEL_LATER_S))
    with suppress(OSError):  # the connection may have ended
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in {**_KEPT_ALIVE, "TCP_USER_TIMEOUT": kernel_ms, "TCP_NOTSENT_LOWAT": _UNSENT_BYTES}.items():
            if (option := getattr(socket, name, None)) is not None:  # Linux has all
                connected.setsockopt(socket.IPPROTO_TCP, option, value)
