"""Gateways and crowds of devices in processes of their own, and the fleet's directory in this one."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from actors.fleet.dialled_device import DialledDevice
from actors.fleet.dialled_devices import DialledDevices
from actors.gateway.actor import drafter_file
from actors.gateway_link import RelayOutcome
from cluster.own_gateway import with_gateway
from lab.bench.gateway.devices import Crowd
from lab.bench.gateway.pipes import child, put, take, until
from lab.bench.gateway.rounds import greedy_round
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.config.schema import Config
from outrider.wire.dialling import Refused

_GROUP = "far"
_START_S = 60.0
_SWEEP_S = 1.0
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class GatewayPort:
    """A gateway, as the directory calls it."""

    writer: asyncio.StreamWriter

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:  # noqa: ARG002
        return RelayOutcome.BUSY, b""  # nothing here asks

    def end(self, incarnation: int, last: Refused | None) -> None:
        if not self.writer.is_closing():
            put(self.writer, (None, (incarnation, last)))


@dataclass(slots=True)
class Scene:
    """``children`` are process ids by name."""

    folder: Path
    config: GatewayConfig
    ends: AsyncExitStack
    keys: tuple[str, ...]
    directory: DialledDevices
    children: dict[str, int] = field(default_factory=dict)
    _streams: dict[str, Stream] = field(default_factory=dict)
    _reading: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.folder / "fleet.sock"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams[await take(reader)] = reader, writer

    async def add_gateway(self, name: str, file: Path) -> None:
        reader, writer = await self._child("lab.bench.gateway.gateway_process", name)
        put(writer, (self.config, {_GROUP: drafter_file(file)}))
        self._reading[name] = asyncio.create_task(self._answer(name, reader, writer))
        await until(lambda: name in self.directory.gateways, _START_S, f"a heartbeat of {name}")

    async def add_devices(self, name: str, crowd: Crowd, nice: int = 0) -> None:
        _, writer = await self._child("lab.bench.gateway.devices", name, nice)
        put(writer, crowd)

    async def counts(self, name: str) -> dict[str, int]:
        """Ask a crowd of devices what it has counted."""
        reader, writer = self._streams[name]
        put(writer, "counts")
        counts: dict[str, int] = await take(reader)
        return counts

    def crowd(self, numbers: range, gateways: tuple[str, ...], **more: Any) -> Crowd:
        def dialled(name: str) -> tuple[str, int]:
            host, _, port = self.directory.gateways[name].address.rpartition(":")
            return host, int(port)

        reply = greedy_round("-" * 43)[1]
        return Crowd(numbers, 16, self.keys, tuple(map(dialled, gateways)), self.folder / "ca.pem", reply, **more)

    def ready_at(self, gateway: str) -> list[DialledDevice]:
        """Return the devices that may draft there, by the directory."""
        state = self.directory.gateways.get(gateway)
        return [one for one in self.directory.all if one.gateway is state and one.is_ready.is_set()]

    def cpu_s(self, name: str) -> float:
        """Return the processor time that a process has taken so far."""
        fields = Path(f"/proc/{self.children[name]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self, name: str) -> int:
        fields = Path(f"/proc/{self.children[name]}/statm").read_text(encoding="utf-8").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    async def _child(self, module: str, name: str, nice: int = 0) -> Stream:
        self.children[name] = await self.ends.enter_async_context(child(module, str(self.socket), name, nice=nice))
        await until(lambda: name in self._streams, _START_S, f"process {name}")
        return self._streams[name]

    async def _answer(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a gateway as the fleet does."""
        try:
            while True:
                number, method, argument = await take(reader)
                now_s = asyncio.get_running_loop().time()
                if method == "admit":
                    put(writer, (number, self.directory.admit(name, argument, now_s)))
                else:
                    put(writer, (number, self.directory.hear(argument, now_s)))
        except (OSError, asyncio.IncompleteReadError):
            pass  # it was killed

    def port_of(self, name: str) -> GatewayPort:
        return GatewayPort(self._streams[name][1])

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.directory.sweep(asyncio.get_running_loop().time())


@asynccontextmanager
async def scene_of(folder: Path, devices: int, host: str = "127.0.0.1") -> AsyncIterator[Scene]:
    """Make certificates and keys for so many devices, and a directory without gateways."""
    config, _ = with_gateway(Config(gateway=GatewayConfig(port=1, host=host, address=host)), folder)
    keys = tuple(secrets.token_urlsafe(24) for _ in range(1 + devices // 16))
    listed = [{"name": f"k{number}", "key": key} for number, key in enumerate(keys)]
    (folder / "devices.yaml").write_text(yaml.safe_dump({"keys": listed}), encoding="utf-8")
    group = DrafterGroupConfig(name=_GROUP, from_="gateway", engine="onnx", max_devices=devices)

    def nothing(*_: object) -> None: ...

    async with AsyncExitStack() as ends:
        found: Scene
        directory = DialledDevices(lambda name: found.port_of(name), *[nothing] * 4)  # noqa: PLW0108 (it comes below)
        directory.want([group])
        found = Scene(folder, replace(config.gateway, port=None), ends, keys, directory)
        server = await asyncio.start_unix_server(found.connected, str(found.socket))
        ends.callback(server.close)
        sweeping = asyncio.create_task(found.sweep())
        ends.callback(sweeping.cancel)
        yield found


def now_s() -> float:
    return time.perf_counter()
