"""HTTP/1.1 as uvicorn speaks it, with bounds on what a client may take: time, bytes, connections.

uvicorn bounds only how long a connection is idle between two requests. A client that is slow to send a request, or
never ends one, loses its connection here; one that is slow to read a response keeps it.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    head_s: ClassVar = 20.0  # for the head of a request, and for a new connection to send one
    body_s: ClassVar = 60.0  # for the body, from the end of the head on
    head_bytes: ClassVar = 64 * 2**10  # of a head; likewise of what follows or divides a body, such as trailers
    most_connections: ClassVar = 4096

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None  # while something is to come
        self._framing_bytes = 0  # since a piece of a body, or the end of a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's, too
        """Begin to wait for a request, if there is room."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._await(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._await_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; from here the parser calls the methods below."""
        if self._deadline is None:
            self._await(self.head_s)
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._framing_bytes > self.head_bytes and not self.transport.is_closing():
            self._refuse()

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        super().on_headers_complete()
        self._await(self.body_s)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, whose bytes the application counts."""
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here; its response may take as long as it takes."""
        self._framing_bytes = 0
        self._await_nothing()
        super().on_message_complete()

    def _await(self, seconds: float) -> None:
        self._await_nothing()
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _await_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        if self._answers_whole_request():  # which must not end for the sake of what comes behind it
            self._await(self.head_s)
        else:
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
