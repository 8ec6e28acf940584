"""Streams between two processes of a service that prove to each other that they know the listening one's secret.

The secret is told over Ray. Nothing is encrypted, as between Ray's processes.
"""

import asyncio
import hmac
import os
import socket
import struct
from dataclasses import dataclass, field
from ipaddress import ip_address

from outrider.contracts.errors import MessageError

SECRET_BYTES = 32
_NONCE_BYTES, _PROOF_BYTES, _VERSION = 32, 32, 2
_HELLO_S = 5.0
_PLACE = struct.Struct(f">H{SECRET_BYTES}s")
_MOST_HOST_BYTES = 64
_KEPT_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 3))  # seconds, seconds, probes


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Where a process listens for coordinators."""

    host: str  # numeric, so that nobody is asked for it
    port: int
    secret: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        return _PLACE.pack(self.port, self.secret) + self.host.encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "StreamPlace":
        """Read what ``to_bytes`` has written; a ``MessageError`` for anything else."""
        try:
            port, secret = _PLACE.unpack_from(data)
            host = str(ip_address(data[_PLACE.size :][:_MOST_HOST_BYTES].decode("ascii")))
        except (struct.error, ValueError) as error:
            raise MessageError(f"needs a port, a secret and a numeric address: {error}") from None
        return cls(host, port, secret)


def ray_encrypts() -> bool:
    """Return whether Ray's processes speak TLS to each other: then nothing of theirs may go over a plain stream."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


async def prove_to_listener(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
    """Begin a coordinator's side of a stream; a ``MessageError``: the other side does not know the secret."""
    _keep_alive(writer)
    async with asyncio.timeout(_HELLO_S):
        theirs, ours = await reader.readexactly(_NONCE_BYTES), os.urandom(_NONCE_BYTES)
        writer.write(bytes([_VERSION]) + ours + _proof(secret, b"coordinator", theirs, ours))
        if not hmac.compare_digest(await reader.readexactly(_PROOF_BYTES), _proof(secret, b"listener", theirs, ours)):
            raise MessageError("needs a listener that knows its secret, found another process at its address")


class StreamProofs:
    """Has whoever opens a stream to a listener prove that it knows the listener's secret."""

    def __init__(self, secret: bytes, most_unproved: int) -> None:
        """Once ``most_unproved`` streams have not proved it yet, one more ends the oldest of them."""
        self._secret, self._most_unproved = secret, most_unproved
        self._unproved = dict[asyncio.StreamWriter, None]()  # the oldest first

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Return once the secret was proved. After an error the stream is closed.

        Raises:
            MessageError: the other side is no coordinator.
            OSError: it has proved nothing in time, has left, or made room for another.
            asyncio.IncompleteReadError: it has left.
        """
        if len(self._unproved) >= self._most_unproved:  # a coordinator proves itself at once
            oldest = next(iter(self._unproved))
            del self._unproved[oldest]  # at once: its own task does so only in a later turn of the loop
            oldest.transport.abort()
        self._unproved[writer] = None
        try:
            _keep_alive(writer)
            await _prove_to_coordinator(reader, writer, self._secret)
            del self._unproved[writer]
        except KeyError:
            raise ConnectionAbortedError("made room for another stream") from None
        except BaseException:
            self._unproved.pop(writer, None)
            writer.transport.abort()
            raise

    def end(self) -> None:
        """Close the streams that have not proved it yet."""
        for writer in self._unproved:
            writer.transport.abort()


async def _prove_to_coordinator(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
    async with asyncio.timeout(_HELLO_S):
        writer.write(ours := os.urandom(_NONCE_BYTES))
        version, theirs = (await reader.readexactly(1))[0], await reader.readexactly(_NONCE_BYTES)
        proof = await reader.readexactly(_PROOF_BYTES)
        if version != _VERSION:
            raise MessageError(f"needs version {_VERSION} of frames, found {version}")
        if not hmac.compare_digest(proof, _proof(secret, b"coordinator", ours, theirs)):
            raise MessageError("needs a coordinator that knows the secret, found another process")
        writer.write(_proof(secret, b"listener", ours, theirs))


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel end a stream whose other end's node is gone without a word."""
    stream = writer.get_extra_info("socket")
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE:
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _proof(secret: bytes, who: bytes, listeners: bytes, coordinators: bytes) -> bytes:
    return hmac.digest(secret, who + b"\0" + listeners + coordinators, "sha256")
