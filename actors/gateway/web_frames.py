"""Frames of WebSockets (RFC 6455, section 5.2), as a server writes them, and reads what a client sends. Pure.

A client's frames are masked. Messages in several frames are put together; control frames may come between these.
"""

import struct

from outrider.contracts.errors import MessageError

BINARY, CLOSE, PING, PONG = 0x2, 0x8, 0x9, 0xA
_CONTINUED, _TEXT = 0x0, 0x1
_LAST, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">Q")
_MOST_CONTROL_BYTES, _MASK_BYTES = 125, 4
_MOST_FRAMES = 1024  # of a message: each costs time, however small


def framed(kind: int, data: bytes) -> bytes:
    """Return a message as a server sends it, in one frame."""
    if (size := len(data)) < 126:
        return bytes((_LAST | kind, size)) + data
    length = struct.pack(">BH", 126, size) if size < 2**16 else struct.pack(">BQ", 127, size)
    return bytes((_LAST | kind,)) + length + data


class ClientFrames:
    """What has come on a connection, and is no whole message yet."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes`` bounds a message."""
        self._most_bytes = most_bytes
        self._rest, self._needed = bytearray(), 2  # that a frame, or its head, needs
        self._parts: list[bytes] | None = None  # of a message of which more frames are to come
        self._parts_bytes = 0

    def add(self, data: bytes) -> None:
        self._rest += data

    def next(self) -> tuple[int, bytes] | None:
        """Take the next message that is whole, or control frame: kind and content; None: more has to come.

        After a ``MessageError`` the connection is of no further use.
        """
        rest = self._rest
        while len(rest) >= self._needed:
            first, size, start = rest[0], rest[1] & 0x7F, 2
            if first & _RESERVED or not rest[1] & _MASKED:
                raise MessageError(f"needs masked frames without extensions, found {bytes(rest[:2])!r}")
            if size > _MOST_CONTROL_BYTES:
                coded = _SHORT if size == 126 else _LONG
                start += coded.size
                if len(rest) < start:
                    self._needed = start
                    return None
                (size,) = coded.unpack_from(rest, 2)
            self._check(first, size)
            start += _MASK_BYTES
            self._needed = start + size
            if len(rest) < self._needed:
                return None
            content = _unmasked(rest[start - _MASK_BYTES : start], rest[start : self._needed])
            del rest[: self._needed]
            self._needed = 2
            kind = first & 0xF
            if kind >= CLOSE or (self._parts is None and first & _LAST):
                return kind, content
            self._parts = [] if self._parts is None else self._parts
            self._parts.append(content)
            self._parts_bytes += size
            if first & _LAST:
                whole, self._parts, self._parts_bytes = b"".join(self._parts), None, 0
                return BINARY, whole
        return None

    def _check(self, first: int, size: int) -> None:
        kind, most_bytes = first & 0xF, self._most_bytes - self._parts_bytes
        if kind == _TEXT:
            raise MessageError("sent text")
        if kind >= CLOSE:
            if kind > PONG or size > _MOST_CONTROL_BYTES or not first & _LAST:
                raise MessageError(f"needs a short control frame that is known, found kind {kind} of {size} bytes")
        elif kind != (BINARY if self._parts is None else _CONTINUED):
            raise MessageError(f"needs a binary message, and then what continues it, found a frame of kind {kind}")
        elif size > most_bytes or len(self._parts or ()) == _MOST_FRAMES:
            most = f"{self._most_bytes} bytes in {_MOST_FRAMES} frames"
            raise MessageError(f"needs a message of at most {most}, found more; it was not read")


def _unmasked(mask: bytearray, data: bytearray) -> bytes:
    size = len(data)
    repeated = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
