"""Lets devices in: a WebSocket for each, on which only what the contract allows is read, and the drafter's files."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import WebSocketError, WSMsgType, web

from actors.gateway.device_connection import PING, PONG, DeviceConnection
from actors.gateway.identities import DeviceIdentity, Identities
from actors.gateway.joined_device import JoinedDevice
from actors.gateway.joined_devices import JoinedDevices
from actors.gateway.listener import DeviceListener
from actors.gateway.sent_file import FilesSent, SentFile, one_request_each
from actors.gateway_beats import GRACE_S, DeviceAdmission, DeviceDial
from outrider.contracts.errors import MessageError, OutriderError
from outrider.events import event
from outrider.tenants.quotas import Bucket
from outrider.versions import DIAL_VERSIONS, VERSIONS
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES, call_versions
from outrider.wire.dialling import (
    DEVICE_PATH,
    FILES_PATH,
    SUBPROTOCOL,
    Bye,
    DeviceReady,
    Hello,
    NumberedReply,
    RefusalCode,
    Refused,
    Welcome,
    read_from_device,
)
from outrider.wire.replies import DrafterCard, read_reply, reply_bytes

PING_S = 1.0  # the longest silence of a gateway
_SILENT_S = 4.0  # of a device, until its connection counts as lost
_HELLO_S = 10.0
_MOST_OPEN = 64  # requests of one identity: 16 devices have two connections each, and fetch a file
_MOST_MESSAGE_BYTES = MOST_DEVICE_CALL_BYTES + 4096
_CONTROLS_PER_MINUTE = 600.0  # messages of a device that answer nothing, such as its own pings
_LOGGED_EVERY_S = 1.0  # at most; strangers must not fill the log, and all refusals are counted
_CLOSED = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
_NO_FILE = Refused(RefusalCode.BUSY, "the gateway prepares its drafter's file", 5)

log = logging.getLogger(__name__)


def anybody(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class DrafterFile:
    path: Path
    digest: bytes  # SHA-256
    size_bytes: int
    is_for: Callable[[str], bool] = anybody  # identities; those that may join its group


class DeviceServer:
    """Answers the requests of devices; ``application`` has its routes."""

    def __init__(
        self,
        identities: Identities,
        devices: JoinedDevices,
        files: Mapping[str, DrafterFile],
        listener: DeviceListener,
    ) -> None:
        """``files`` are by group."""
        self._identities, self._devices, self._files, self._listener = identities, devices, files, listener
        self._connections = dict[DeviceConnection, None]()
        self._open = Counter[str]()  # requests, by whose they are
        self.sending = FilesSent()
        self._may_log_at_s = 0.0
        self.is_draining = False

    def application(self) -> web.Application:
        found = web.Application(client_max_size=1024)
        found.on_response_prepare.append(one_request_each)
        found.router.add_get(DEVICE_PATH, self._device)
        found.router.add_get(f"{FILES_PATH}{{digest:[0-9a-f]{{64}}}}", self._file)
        return found

    @property
    def connections(self) -> int:
        return len(self._connections)

    def abort_all(self) -> None:
        for connection in tuple(self._connections):
            connection.abort()

    def ping(self, now_s: float) -> None:
        """Ping whoever was silent, and cut off whoever stayed so. Called about once a ``PING_S``."""
        for connection in tuple(self._connections):
            if (silent_s := now_s - connection.heard_at_s) > PING_S / 2:
                if connection.takes_more():
                    connection.heard_at_s = now_s
                elif silent_s > _SILENT_S:
                    connection.abort()
                connection.send_frame(PING, b"")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        identity = self._who(request)
        if isinstance(identity, Refused):
            raise web.HTTPServiceUnavailable if identity.retry_after_s else web.HTTPUnauthorized
        digest = bytes.fromhex(request.match_info["digest"])
        files = (file for file in self._files.values() if file.digest == digest and file.is_for(identity.name))
        if (found := next(files, None)) is None:
            raise web.HTTPNotFound
        if not self.sending.may_be_more_to(identity):
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "5"})
        return SentFile(found.path, found.size_bytes, lambda: self._sent(request, identity))

    @contextmanager
    def _sent(self, request: web.Request, identity: DeviceIdentity) -> Iterator[None]:
        with self.sending.noted(request, identity), self._counted(identity):
            yield

    @contextmanager
    def _counted(self, identity: DeviceIdentity) -> Iterator[None]:
        self._open[identity.name] += 1
        try:
            yield
        finally:
            self._open[identity.name] -= 1
            self._open += Counter()  # without what is 0

    async def _device(self, request: web.Request) -> web.StreamResponse:
        stream = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,), compress=False, autoping=False, max_msg_size=_MOST_MESSAGE_BYTES
        )
        await stream.prepare(request)
        transport: Any = request.transport
        if transport is None:
            return stream
        connection = DeviceConnection(transport, _now_s())
        self._connections[connection] = None
        try:
            await self._served(stream, connection, request)
        finally:
            del self._connections[connection]
            connection.close()
        return stream

    async def _served(self, stream: web.WebSocketResponse, connection: DeviceConnection, request: web.Request) -> None:
        identity = self._who(request)
        if isinstance(identity, Refused):
            self._refuse(connection, identity)
        else:
            with self._counted(identity):
                await self._served_to(identity, stream, connection, request)

    async def _served_to(
        self,
        identity: DeviceIdentity,
        stream: web.WebSocketResponse,
        connection: DeviceConnection,
        request: web.Request,
    ) -> None:
        """Let a device in, and read what it sends until it leaves."""
        try:
            async with asyncio.timeout(_HELLO_S):
                joined = await self._let_in(stream, connection, identity, request)
        except TimeoutError:
            self._refuse(connection, Refused(RefusalCode.BUSY, f"needs a hello within {_HELLO_S:g} s; dial again", 1))
            return
        except MessageError as error:
            self._refuse(connection, Refused(RefusalCode.VERSION, f"needs a hello: {error}"))
            return
        if joined is None:
            return
        breach = None
        try:
            await self._read(stream, connection, joined)
        except MessageError as error:
            breach = str(error)[:200]
            connection.close(Refused(RefusalCode.UNFIT, breach, 5))
        finally:
            self._devices.lost(joined, connection, breach)

    async def _let_in(
        self,
        stream: web.WebSocketResponse,
        connection: DeviceConnection,
        identity: DeviceIdentity,
        request: web.Request,
    ) -> JoinedDevice | None:
        hello = read_from_device(await _next_binary(stream))
        if not isinstance(hello, Hello):
            raise MessageError(f"found {type(hello).__name__}")
        if (refused := self._refusal(hello)) is not None:
            self._refuse(connection, refused)
            return None
        name = identity.name if hello.name in ("", identity.name) else f"{identity.name}/{hello.name}"
        dial = DeviceDial(name, identity.name, hello.process, hello.dial)
        admission = await self._devices.admit(dial, identity)
        file = self._files.get(admission.drafter.group) if isinstance(admission, DeviceAdmission) else None
        admission = self._disbelief(identity, request) or admission  # what was believed may be so no more
        if isinstance(admission, Refused):
            self._refuse(connection, admission)
            return None
        if file is None:
            self._refuse(connection, _NO_FILE)
            return None
        joined = self._devices.join(admission, dial, identity, connection)
        if joined is not None:
            welcome = _welcome(hello, admission, file)
            connection.send(welcome)
            connection.speak(welcome.version)
        return joined

    def _who(self, request: web.Request) -> DeviceIdentity | Refused:
        """Return whose a request is, or what is said, before anything is read, to whoever may not dial."""
        identity = self._identity(request)
        if identity is None:
            return Refused(RefusalCode.UNKNOWN_IDENTITY, "needs a certificate or a device key that this gateway knows")
        if (refused := self._disbelief(identity, request)) is not None:
            return refused
        if self._open[identity.name] >= _MOST_OPEN:
            return Refused(RefusalCode.TOO_MANY, f"{identity.name} has {_MOST_OPEN} connections", 5)
        self._mark_known(request)
        return identity

    def _disbelief(self, identity: DeviceIdentity, request: web.Request) -> Refused | None:
        if self._identities.is_revoked(identity):
            return Refused(RefusalCode.REVOKED, f"{identity.name} is revoked")
        transport = request.transport
        if identity.certificate is not None and transport is not None and not self._listener.believes(transport):
            return Refused(RefusalCode.BUSY, "certificates have changed; prove again who you are", 1)
        return None

    def _refusal(self, hello: Hello) -> Refused | None:
        fault = call_versions(VERSIONS).fault(hello.versions)
        if DIAL_VERSIONS.common(hello.dial_versions) is None:
            fault = f"dial version {DIAL_VERSIONS}, found {hello.dial_versions}"
        if fault is not None:
            return Refused(RefusalCode.VERSION, f"needs {fault}; install the same version of outrider-edge")
        if "onnx" not in hello.engines:
            return Refused(RefusalCode.UNFIT, "needs the engine onnx")
        if self.is_draining:
            return Refused(RefusalCode.BUSY, "this gateway is draining; dial another one", 1)
        if not self._files:  # else the fleet would have it leave the gateway that it comes from
            return _NO_FILE
        return None

    async def _read(self, stream: web.WebSocketResponse, connection: DeviceConnection, joined: JoinedDevice) -> None:
        """Read until the device leaves; a ``MessageError``: it broke the contract."""
        controls = Bucket(_CONTROLS_PER_MINUTE, _CONTROLS_PER_MINUTE / 10, _now_s())
        while True:
            message = await stream.receive()
            connection.heard_at_s = now_s = _now_s()
            if message.type is WSMsgType.ERROR and isinstance(message.data, WebSocketError):
                raise MessageError(f"sent what is no message: {message.data!r:.100}")
            if message.type in _CLOSED or joined.connection is not connection:
                return  # (what is left of a connection that another one has replaced is not read)
            if message.type is WSMsgType.BINARY:
                found = connection.read(message.data)
                if isinstance(found, NumberedReply) and joined.is_ready:
                    joined.calls.replied(found)
                    continue
                if isinstance(found, DeviceReady) and not joined.is_ready:
                    _check_card(found.card)
                    self._devices.ready(joined)
                    continue
                if isinstance(found, Bye):
                    self._devices.goodbye(joined, connection)
                    return
                raise MessageError(f"sent a {type(found).__name__} that is not expected")
            if message.type is WSMsgType.TEXT:
                raise MessageError("sent text")
            _count_control(controls, now_s)
            if message.type is WSMsgType.PING:
                connection.send_frame(PONG, bytes(message.data))

    def _refuse(self, connection: DeviceConnection, refused: Refused) -> None:
        self._devices.refused[refused.code] += 1
        if (now_s := _now_s()) >= self._may_log_at_s:
            self._may_log_at_s = now_s + _LOGGED_EVERY_S
            event(log, "device_refused", code=refused.code, reason=refused.reason)
        connection.close(refused)

    def _identity(self, request: web.Request) -> DeviceIdentity | None:
        transport = request.transport
        if transport is None:
            return None
        tls: Any = transport.get_extra_info("ssl_object")
        peer = transport.get_extra_info("peername") or ("",)
        certificate = tls.getpeercert(binary_form=True) if tls is not None and tls.getpeercert() else None
        try:
            return self._identities.of(str(peer[0]), request.headers, certificate)
        except OutriderError:
            return None

    def _mark_known(self, request: web.Request) -> None:
        if request.transport is not None:
            self._listener.known(request.transport)


async def _next_binary(stream: web.WebSocketResponse) -> bytes:
    message = await stream.receive()
    if message.type is not WSMsgType.BINARY:
        raise MessageError(f"found {message.type.name}")
    return bytes(message.data)


def _count_control(controls: Bucket, now_s: float) -> None:
    controls.refill(_CONTROLS_PER_MINUTE, now_s)
    if controls.wait_s(1.0) > 0:
        raise MessageError(f"sent more than {_CONTROLS_PER_MINUTE:g} messages a minute that answer nothing")
    controls.level -= 1.0


def _check_card(card: bytes) -> None:
    try:
        found = read_reply(card, reply_bytes("card"))
    except OutriderError as error:  # of a reply: here it is a message that breaks the protocol
        raise MessageError(f"sent no card: {error}") from error
    if not isinstance(found, DrafterCard):
        raise MessageError("sent no card")


def _welcome(hello: Hello, admission: DeviceAdmission, file: DrafterFile) -> Welcome:
    version = DIAL_VERSIONS.common(hello.dial_versions)
    assert version is not None, "it was checked"
    name = f"{admission.drafter.group}/{admission.drafter.index}"
    files = file.digest, file.size_bytes
    return Welcome(version, name, admission.incarnation, *files, PING_S, GRACE_S, admission.others)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
