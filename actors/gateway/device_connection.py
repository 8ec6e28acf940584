"""A device's WebSocket from its handshake on: what it sends is read as it comes, and handed on without a task between.

Frames are written to the transport at once, so that nothing waits for a slow device.
"""

import asyncio
import struct
from collections.abc import Callable

from actors.gateway.web_frames import BINARY, CLOSE, PING, PONG, ClientFrames, framed
from actors.tcp_counts import Carried, acked_bytes, read_connection
from actors.waiting import retrieve
from outrider.contracts.errors import MessageError
from outrider.wire import short_forms
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES
from outrider.wire.dialling import FromDevice, FromGateway, read_from_device, write_dialled
from outrider.wire.short_forms import FIRST_SHORT_VERSION, CallHeads

_MOST_MESSAGE_BYTES = MOST_DEVICE_CALL_BYTES + 4096
_MOST_UNREAD_BYTES = 2 * MOST_DEVICE_CALL_BYTES + 2**16  # of messages that a device does not read
_SLOWEST_BYTES = 512  # that reach a device over a slow link from one look to the next; pings are far less

Take = Callable[[FromDevice | None], None]  # None: a ping, or another message that answers nothing


class DeviceConnection(asyncio.Protocol):
    """Takes the place of the protocol that has made the handshake, which is told of the transport all the same."""

    def __init__(self, transport: asyncio.Transport, before: asyncio.Protocol, now_s: Callable[[], float]) -> None:
        self._transport, self._before, self._now_s = transport, before, now_s
        self._socket = transport.get_extra_info("socket")  # a transport that was lost has none any more
        self.heard_at_s, self._acked_bytes, self._carried = now_s(), 0, Carried()
        self._frames = ClientFrames(_MOST_MESSAGE_BYTES)
        self._take: Take | None = None
        self._first: asyncio.Future[FromDevice] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first.add_done_callback(retrieve)  # nobody waits where a device is refused
        self._ended.add_done_callback(retrieve)
        self._write: Callable[[FromGateway], bytes] = write_dialled
        self._read: Callable[[bytes], FromDevice] = read_from_device
        transport.set_protocol(self)

    async def first(self) -> FromDevice:
        """Return the first message; nothing is read behind it until ``taken``. A ``MessageError``: there is none."""
        return await self._first

    async def taken(self, take: Take) -> None:
        """Have ``take`` called with each message until the device leaves; an error of it ends that, and is raised."""
        self._take = take
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._read_on()
        await self._ended

    def stop(self) -> None:
        """Take nothing more."""
        if not self._ended.done():
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.heard_at_s = self._now_s()
        if not self._ended.done():
            self._frames.add(data)
            self._read_on()

    def _read_on(self) -> None:
        try:
            while not self._ended.done() and (self._take is not None or not self._first.done()):
                found = self._frames.next()
                if found is None:
                    return
                self._heard(*found)
        except MessageError as error:
            self._fail(error)

    def _heard(self, kind: int, content: bytes) -> None:
        if kind == CLOSE:
            self._lost()
            return
        message = self._read(content) if kind == BINARY else None
        if self._take is not None:
            self._take(message)
            if kind == PING:
                self.send_frame(PONG, content)
        elif message is None:
            raise MessageError("found no message")
        else:
            self._first.set_result(message)
            self._transport.pause_reading()

    def _fail(self, error: MessageError) -> None:
        for waiting in (self._first, self._ended):
            if not waiting.done():
                waiting.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()

    def _lost(self) -> None:
        if not self._first.done():
            self._first.set_exception(MessageError("found the end of the connection"))
        self.stop()

    def speak(self, version: int) -> None:
        """Use this version of messages from now on."""
        if version >= FIRST_SHORT_VERSION:
            self._write, self._read = CallHeads().write, short_forms.read_from_device

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
        self.stop()
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
