"""A gateway in this process, the fleet's directory of devices, and devices that dial it over TLS."""

import asyncio
import os
import pickle
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from actors.fleet.dialled_devices import DialledDevices
from actors.gateway.actor import drafter_file
from actors.gateway.device_server import DrafterFile
from actors.gateway.gateway import Gateway
from actors.gateway_beats import DeviceAdmission, DeviceDial, GatewayBeat, GatewayNews
from actors.gateway_link import DialledHandle, RelayOutcome
from actors.messages import DrafterId
from cluster.own_gateway import with_gateway
from edge.host import DrafterHost
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.config.schema import Config
from outrider.contracts.errors import FleetUnavailableError
from outrider.versions import DIAL_VERSIONS, VERSIONS, VersionRange
from outrider.wire.dialling import (
    DEVICE_PATH,
    SUBPROTOCOL,
    DeviceReady,
    FromGateway,
    Hello,
    NumberedCall,
    NumberedReply,
    Refused,
    Welcome,
    read_from_gateway,
    write_dialled,
)
from outrider.wire.replies import plain
from outrider.wire.short_forms import FIRST_SHORT_VERSION, CallHeads, write_reply

GROUP = DrafterGroupConfig(name="far", from_="gateway", engine="onnx", max_devices=3)
FIRST = DrafterId("far", 0)
DRAFTER_FILE = b"a drafter's file" * 1000


class GatewayPort:
    """Gateways in this process, as the fleet calls them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:
        return await self._gateway.ask(incarnation, call, most_bytes)

    def end(self, incarnation: int, last: Refused | None) -> None:
        self._gateway.devices.end(incarnation, last)


@dataclass
class DirectFleet:
    """The fleet's directory of devices, without the care of drafters."""

    gateways: dict[str, Gateway] = field(default_factory=dict)
    happened: list[tuple[str, DrafterId]] = field(default_factory=list)
    is_away: bool = False

    def __post_init__(self) -> None:
        def noted(what: str) -> Callable[..., None]:
            return lambda drafter, *_: self.happened.append((what, drafter.place))

        self.devices = DialledDevices(
            lambda name: GatewayPort(self.gateways[name]), *map(noted, ("joined", "away", "left", "broke"))
        )
        self.devices.want([GROUP])

    def of(self, name: str) -> "DirectLink":
        return DirectLink(self, name)

    async def ready(self) -> int:
        """Wait for the one device, and return its incarnation."""
        await until(lambda: any(one.is_ready.is_set() for one in self.devices.all))
        (device,) = self.devices.all
        return device.incarnation

    def handle(self, drafter: DrafterId = FIRST) -> DialledHandle | None:
        found = next((one for one in self.devices.all if one.drafter.place == drafter), None)
        leased: DialledHandle | None = pickle.loads(pickle.dumps(found))  # as Ray brings it
        return leased


@dataclass
class DirectLink:
    fleet: DirectFleet
    name: str

    async def admit(self, dial: DeviceDial) -> DeviceAdmission | Refused:
        self._check()
        return self.fleet.devices.admit(self.name, dial, _now_s())

    async def beat(self, beat: GatewayBeat) -> GatewayNews:
        self._check()
        return self.fleet.devices.hear(beat, _now_s())

    def _check(self) -> None:
        if self.fleet.is_away:
            raise FleetUnavailableError("gone")


@dataclass
class Place:
    """Certificates and a key of devices, in a folder."""

    folder: Path
    config: GatewayConfig
    ca: Path
    key: str

    @classmethod
    def made(cls, folder: Path, **more: Any) -> "Place":
        config, line = with_gateway(
            Config(gateway=GatewayConfig(port=1, host="127.0.0.1", address="127.0.0.1")), folder
        )
        assert line is not None
        key = (folder / "device.key").read_text()
        return cls(folder, replace(config.gateway, port=None, **more), folder / "ca.pem", key)

    def write_devices(self, text: str) -> None:
        assert self.config.devices_file is not None
        Path(self.config.devices_file).write_text(text, encoding="utf-8")

    def tls(self, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


class Dialler:
    """A device's process: dials when it is told to, and answers calls by its host."""

    def __init__(
        self,
        place: Place,
        host: DrafterHost | None = None,
        name: str = "",
        key: str | None = None,
        dial_versions: VersionRange = DIAL_VERSIONS,
    ) -> None:
        self.place, self.host, self.name, self.dial_versions = place, host, name, dial_versions
        self.key = place.key if key is None else key
        self.process, self.dial_number = os.urandom(8), 0
        self.welcome: Welcome | None = None
        self.heard: list[FromGateway] = []
        self.answering = set[asyncio.Task[None]]()
        self._client: aiohttp.ClientSession | None = None
        self._stream: Any = None
        self._streams: list[Any] = []
        self._reading: asyncio.Task[None] | None = None
        self.calls: list[NumberedCall] = []  # that nobody answers where there is no host

    async def dial(self, gateway: Gateway, *, ready: bool = True, tls: ssl.SSLContext | None = None) -> FromGateway:
        """Dial, say hello, and return what the gateway says to it; then answer calls in the background."""
        before = self._reading
        self.dial_number += 1
        if self._client is None:
            self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        stream = await self._client.ws_connect(
            f"wss://127.0.0.1:{gateway.port}{DEVICE_PATH}",
            ssl=tls or self.place.tls(),
            headers=headers,
            protocols=(SUBPROTOCOL,),
            max_msg_size=2**24,
        )
        self._stream = stream
        self._streams.append(stream)
        with suppress(OSError, aiohttp.ClientError):  # refused already
            await stream.send_bytes(write_dialled(self.hello()))
        first = read_from_gateway((await stream.receive()).data)
        if isinstance(first, Welcome):
            self.welcome = first
            if ready and self.host is not None:
                await stream.send_bytes(write_dialled(DeviceReady(plain(await self.host.card()))))
            self._reading = asyncio.create_task(self._read(stream))
        if before is not None:
            before.cancel()
        return first

    def hello(self) -> Hello:
        return Hello(self.dial_versions, VERSIONS, "test", self.process, self.dial_number, self.name)

    async def send(self, data: bytes) -> None:
        await self._stream.send_bytes(data)

    @property
    def stream(self) -> Any:
        return self._stream

    @property
    def _transport(self) -> Any:
        return self._stream._response.connection.transport  # noqa: SLF001 (no public way)

    def cut(self) -> None:
        """Break the connection without a word."""
        self._transport.abort()

    def write_raw(self, data: bytes) -> None:
        self._transport.write(data)

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        for task in tuple(self.answering):
            task.cancel()
        for stream in self._streams:
            await stream.close()
        if self._client is not None:
            await self._client.close()

    async def _read(self, stream: Any) -> None:
        heads = self._short_forms()
        async for message in stream:
            if message.type is not aiohttp.WSMsgType.BINARY:
                continue
            found = read_from_gateway(message.data) if heads is None else heads.read(message.data)
            self.heard.append(found)
            if isinstance(found, NumberedCall):
                self.calls.append(found)
                if self.host is not None:
                    task = asyncio.create_task(self._answer(stream, found))
                    self.answering.add(task)
                    task.add_done_callback(self.answering.discard)

    async def _answer(self, stream: Any, call: NumberedCall) -> None:
        assert self.host is not None
        reply = await self.host.answer(call.call)
        with suppress(OSError, aiohttp.ClientError):
            write = write_dialled if self._short_forms() is None else write_reply
            await stream.send_bytes(write(NumberedReply(call.number, reply)))

    def _short_forms(self) -> CallHeads | None:
        assert self.welcome is not None
        return CallHeads() if self.welcome.version >= FIRST_SHORT_VERSION else None


@asynccontextmanager
async def gateway_of(place: Place, fleet: DirectFleet, name: str = "gateway-0") -> AsyncIterator[Gateway]:
    file = place.folder / "drafter.onnx"
    file.write_bytes(DRAFTER_FILE)

    async def files() -> dict[str, DrafterFile]:
        return {"far": drafter_file(file)}

    gateway = await asyncio.to_thread(Gateway, name, place.config, fleet.of(name), "127.0.0.1")
    fleet.gateways[name] = gateway
    await gateway.start(files)
    try:
        await until(lambda: bool(gateway.files) and name in fleet.devices.gateways)
        yield gateway
    finally:
        await gateway.stop()
        fleet.gateways.pop(name, None)


async def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 (product state has no event)
            await asyncio.sleep(0.005)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
