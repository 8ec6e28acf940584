"""One connection to a gateway, from the first message until either side leaves it."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from edge.answering import PATIENCE_S, AnswerBounds, Answering
from edge.gateway_access import GatewayAccess
from edge.loaded_drafter import LoadedDrafter
from edge.silence import LinkSilence
from outrider import __version__
from outrider.contracts.errors import MessageError, OutriderError
from outrider.versions import DIAL_VERSIONS
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES
from outrider.wire.dialling import (
    DEVICE_PATH,
    SUBPROTOCOL,
    Bye,
    DeviceReady,
    FromGateway,
    Hello,
    MoveTo,
    NumberedCall,
    NumberedReply,
    Refused,
    Welcome,
    read_from_gateway,
    write_dialled,
)
from outrider.wire.replies import plain
from outrider.wire.short_forms import FIRST_SHORT_VERSION, CallHeads, write_reply

if sys.platform == "linux":
    import fcntl
    import termios

_MOST_MESSAGE_BYTES = MOST_DEVICE_CALL_BYTES + 8
_QUEUED_FRAMES = 2  # that the library reads ahead
_MOST_UNREAD_BYTES = 2**24  # of what this side wrote
DIAL_S, _CLOSE_S = 5.0, 1.0
_WELCOME_S = 10.0  # longer than a gateway waits for its fleet, or it cannot say that it is busy
_SILENT_PINGS = 3
_UNWELCOME_S = 3.0  # of a gateway that has not told its pings yet
_REDIAL_S = 1.0  # between dials beside a connection that may be dead
_LEAVE_S = 1.0  # for calls under way, before a gateway is left for another


class GatewayRefusedError(OutriderError):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.refused = refused


class GatewaySilentError(OutriderError):
    """Nothing was heard for three pings: the connection is dead, or this device has another address now."""


class LinkedDevice(Protocol):
    """What a link asks of the device that it belongs to."""

    def hello(self) -> Hello: ...

    async def drafting_for(self, address: str, welcome: Welcome) -> LoadedDrafter:
        """Return what drafts, fetched and loaded if it is not there."""

    def note_served(self, link: "DialledLink", welcome: Welcome) -> None:
        """Note that the gateway may call."""

    def move(self, link: "DialledLink", to: MoveTo) -> None:
        """Dial another gateway, and stay at this one until that serves the device."""

    def doubt(self, link: "DialledLink") -> None:
        """Dial beside a link that may be dead, in ``link.dial_s``."""

    def trust(self, link: "DialledLink") -> None:
        """Dial no more beside a link on which something was heard again."""


class _HeardConnection(ClientConnection):
    """Notes when anything was heard, pings too, and ends when the other side reads nothing of what it asks for."""

    heard_at_s = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_at_s = time.monotonic()
        super().data_received(data)
        if self.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            self.transport.abort()

    @property
    def unread_bytes(self) -> int:
        """What was sent and is not acknowledged, as far as this system tells."""
        open_socket, unread_bytes = self.transport.get_extra_info("socket"), self.transport.get_write_buffer_size()
        if sys.platform == "linux" and open_socket is not None and (number := open_socket.fileno()) >= 0:
            unread_bytes += int.from_bytes(fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return unread_bytes


class _Dial(connect):
    def process_redirect(self, exc: Exception) -> Exception:
        """Follow none: another host would be told who this device is."""
        return exc


class DialledLink:
    """``served``: whether the gateway could call."""

    def __init__(
        self,
        address: str,
        access: GatewayAccess,
        device: LinkedDevice,
        bounds: AnswerBounds,
        dial_s: float = DIAL_S,
    ) -> None:
        """``dial_s`` is how long the gateway may take to answer the dial."""
        self.address, self._access, self._device, self._bounds = address, access, device, bounds
        self.served, self.dial_s = False, dial_s
        self._silence = LinkSilence(_UNWELCOME_S, 0.0)
        self._connection: _HeardConnection | None = None
        self._answering: Answering | None = None
        self._write_reply: Callable[[NumberedReply], bytes] = write_dialled
        self._read_message: Callable[[bytes], FromGateway] = read_from_gateway

    async def serve(self) -> None:
        """Dial, and answer calls until the gateway, or ``close_when_answered``, closes the connection.

        Raises:
            GatewayRefusedError: the gateway does not serve this device.
            GatewaySilentError: nothing was heard for three pings.
            MessageError: the gateway says what no gateway may.
            OSError, WebSocketException: it cannot be dialled, or the connection is lost.
            OutriderError: certificates, keys or the drafter's file cannot be used.
        """
        async with self._dialled() as connection:
            try:
                await self._send(write_dialled(self._device.hello()))
                said_at_s = time.monotonic()
                async with asyncio.timeout(_WELCOME_S):
                    welcome = self._read(await self._received(connection))
                if not isinstance(welcome, Welcome) or not DIAL_VERSIONS.has(welcome.version):
                    raise MessageError(f"needs a welcome of version {DIAL_VERSIONS}, found {welcome!r:.60}")
                if welcome.version >= FIRST_SHORT_VERSION:
                    self._write_reply, self._read_message = write_reply, CallHeads().read
                self._silence = LinkSilence(_SILENT_PINGS * welcome.ping_s, time.monotonic() - said_at_s)
                await self._draft(connection, welcome)
            finally:
                if self._answering is not None:
                    self._answering.cancel()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def bye(self) -> None:
        """Tell the gateway that this device stops."""
        if self._connection is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._send(write_dialled(Bye()))
                    await self._connection.close()

    async def close_when_answered(self) -> None:
        """Close the connection once the calls under way are answered."""
        if self._answering is not None:
            await self._answering.finish(_LEAVE_S)
        if self._connection is not None:
            await self._connection.close()

    @asynccontextmanager
    async def _dialled(self) -> AsyncIterator[_HeardConnection]:
        dial = _Dial(
            f"wss://{self.address}{DEVICE_PATH}",
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            additional_headers=self._access.headers(),
            user_agent_header=f"outrider-edge/{__version__}",
            open_timeout=self.dial_s,
            ping_interval=None,
            close_timeout=_CLOSE_S,
            max_size=_MOST_MESSAGE_BYTES,
            max_queue=_QUEUED_FRAMES,
            create_connection=_HeardConnection,
            ssl=await asyncio.to_thread(self._access.context),
        )
        async with dial as connection:
            assert isinstance(connection, _HeardConnection), "dial makes no other"
            if connection.subprotocol != SUBPROTOCOL:
                raise MessageError(f"needs a gateway that speaks {SUBPROTOCOL}, found {connection.subprotocol}")
            self._connection = connection
            yield connection

    async def _draft(self, connection: _HeardConnection, welcome: Welcome) -> None:
        """Load the drafter, say so, and answer calls; meanwhile the gateway may end this, or move the device."""
        reading = asyncio.ensure_future(self._read_on(connection))
        loading = asyncio.ensure_future(self._device.drafting_for(self.address, welcome))
        try:
            await asyncio.wait({reading, loading}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                drafting = await loading
                self._answering = Answering(drafting.host, self._bounds, self._reply)
                await self._send(write_dialled(DeviceReady(plain(drafting.card))))
                self.served = True
                self._device.note_served(self, welcome)
            await reading
        finally:
            for task in (reading, loading):
                task.cancel()
            await asyncio.gather(reading, loading, return_exceptions=True)

    async def _read_on(self, connection: _HeardConnection) -> None:
        while True:
            message = self._read(await self._received(connection))
            match message:
                case NumberedCall(number, call) if self._answering is not None:
                    self._silence.called(time.monotonic())
                    held = await self._answering.room(len(call))
                    self._answering.answer(number, call, held)
                case MoveTo():
                    self._device.move(self, message)
                case _:
                    raise MessageError(f"needs calls of a device that is ready, found a {type(message).__name__}")

    def _read(self, data: str | bytes) -> Welcome | NumberedCall | MoveTo:
        if isinstance(data, str):
            raise MessageError("needs binary messages, found text")
        message = self._read_message(data)
        if isinstance(message, Refused):
            raise GatewayRefusedError(message)
        return message

    async def _reply(self, number: int, reply: bytes) -> None:
        await self._send(self._write_reply(NumberedReply(number, reply)))

    async def _send(self, data: bytes) -> None:
        """Send, unless the connection has ended: whoever reads it hears why."""
        assert self._connection is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._connection.send(data)
        except ConnectionClosed:
            pass
        except TimeoutError:  # it does not read
            self._connection.transport.abort()

    async def _received(self, connection: _HeardConnection) -> str | bytes:
        """Return the next message. Only time in which one is waited for is silence: a full queue hears nothing."""
        silence, doubted_at_s, unread_bytes = self._silence, float("-inf"), 0
        connection.heard_at_s = time.monotonic()
        while True:
            now_s, before_bytes, unread_bytes = time.monotonic(), unread_bytes, connection.unread_bytes
            if 0 < unread_bytes < before_bytes:  # a long reply that is on its way, with a ping behind it
                connection.heard_at_s = now_s
            silence.heard(connection.heard_at_s)
            if silence.is_dead(now_s):
                connection.transport.abort()
                raise GatewaySilentError("needs to hear of the gateway, found silence")
            if silence.is_unanswered(now_s) and now_s - doubted_at_s >= _REDIAL_S:
                doubted_at_s, self.dial_s = now_s, silence.dial_s
                self._device.doubt(self)
            with suppress(TimeoutError):
                async with asyncio.timeout(silence.left_s(now_s)):
                    if silence.is_late(now_s):
                        silence.pinged(now_s)
                        asyncio.ensure_future(await connection.ping()).add_done_callback(self._ponged)
                        continue
                    message: str | bytes = await connection.recv()
                    return message

    def _ponged(self, answered: "asyncio.Future[float]") -> None:
        if not answered.cancelled() and answered.exception() is None:
            self._silence.ponged(answered.result())
            self._device.trust(self)
