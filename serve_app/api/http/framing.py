"""Framing of messages that uvicorn's HTTP/1.1 leaves out: offers to upgrade, and answers to HTTP/1.0 clients."""

from typing import Any

import httptools
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class UpgradeIgnoringParser:
    """A parser that reads on, in HTTP/1.1, where a request offers another protocol (RFC 9110, section 7.8).

    The library ends a request with its head there: its body is lost. Java's HttpClient offers h2c with every request.
    """

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol, self._parser = protocol, protocol.parser
        self.is_between = False  # a head is parsed that is not the client's

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the parser."""
        return getattr(self._parser, name)

    def should_upgrade(self) -> bool:
        """Never: no other protocol is spoken here."""
        return False

    @property
    def awaits_body(self) -> bool:
        """Whether the request whose head was just read has a body that a new parser will read."""
        return bool(self._parser.should_upgrade())

    def feed_data(self, data: bytes) -> None:
        """Parse; the protocol's methods are called.

        Raises:
            httptools.HttpParserError: it is not HTTP.
        """
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
