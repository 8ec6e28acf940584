"""A device's WebSocket, as the gateway writes to it and looks at it; ``device_server`` reads what comes."""

import asyncio
import struct
from collections.abc import Callable

from actors.tcp_counts import Carried, acked_bytes, read_connection
from outrider.wire import short_forms
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES
from outrider.wire.dialling import FromDevice, FromGateway, read_from_device, write_dialled
from outrider.wire.short_forms import FIRST_SHORT_VERSION, CallHeads

BINARY, CLOSE, PING, PONG = 0x82, 0x88, 0x89, 0x8A  # kinds of frames, each the last of its message
_MOST_UNREAD_BYTES = 2 * MOST_DEVICE_CALL_BYTES + 2**16  # of messages that a device does not read
_SLOWEST_BYTES = 512  # that reach a device over a slow link from one look to the next; pings are far less


class DeviceConnection:
    """A WebSocket's sending side: frames go to the transport at once, so nothing waits for a slow device."""

    def __init__(self, transport: asyncio.Transport, now_s: float) -> None:
        self._transport, self._carried = transport, Carried()
        self._socket = transport.get_extra_info("socket")  # a transport that was lost has none any more
        self.heard_at_s, self._acked_bytes = now_s, 0
        self._write: Callable[[FromGateway], bytes] = write_dialled
        self.read: Callable[[bytes], FromDevice] = read_from_device

    def speak(self, version: int) -> None:
        """Use this version of messages from now on."""
        if version >= FIRST_SHORT_VERSION:
            self._write, self.read = CallHeads().write, short_forms.read_from_device

    def send(self, message: FromGateway) -> None:
        self.send_frame(BINARY, self._write(message))

    def send_frame(self, kind: int, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(framed(kind, data))
        if self._transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            self._transport.abort()

    def close(self, last: FromGateway | None = None) -> None:
        if last is not None:
            self.send(last)
        self.send_frame(CLOSE, struct.pack(">H", 1000))
        if not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def takes_more(self) -> bool:
        """Return whether a message still reaches the device, which so cannot answer a ping behind it yet."""
        if self._transport.is_closing():
            return False
        before, self._acked_bytes = self._acked_bytes, acked_bytes(self._socket.fileno())
        return self._acked_bytes - before >= _SLOWEST_BYTES

    def carried(self) -> Carried:
        """Return what the kernel counts; of a connection that has ended what it counted last."""
        if not self._transport.is_closing() and (number := self._socket.fileno()) >= 0:
            found = read_connection(number)
            self._carried = self._carried if found is None else found
        return self._carried


def framed(kind: int, data: bytes) -> bytes:
    """Return a frame of a WebSocket as a server sends it (RFC 6455, section 5.2)."""
    if (size := len(data)) < 126:
        return bytes((kind, size)) + data
    length = struct.pack(">BH", 126, size) if size < 2**16 else struct.pack(">BQ", 127, size)
    return bytes((kind,)) + length + data
