"""Runs a gateway as a named, detached Ray actor, which the fleet creates."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util import get_node_ip_address

from actors.abandoned import end_named, end_when_abandoned
from actors.gateway.device_server import DrafterFile
from actors.gateway.gateway import Gateway
from actors.gateway_beats import DeviceAdmission, DeviceDial, GatewayBeat, GatewayNews, GatewaySettings
from actors.gateway_link import RelayOutcome
from actors.head_actors import run_once_here
from actors.start import started, starting
from actors.waiting import Named, within
from outrider.contracts.errors import FleetUnavailableError
from outrider.documents.whole_file import write_whole
from outrider.events import write_events
from outrider.models.embedded import outrider_home
from outrider.wire.dialling import Refused

_FLEET_DEADLINE_S = 5.0


class RayFleetLink:
    """The fleet actor, as a gateway sees it."""

    def __init__(self, gateway: str, fleet: str, namespace: str) -> None:
        """Take the actors' names."""
        self._gateway = gateway
        self._fleet = Named(lambda: ray.get_actor(fleet, namespace=namespace), _FLEET_DEADLINE_S)
        self.heard_at_s = time.monotonic()

    async def admit(self, dial: DeviceDial) -> DeviceAdmission | Refused:
        found: DeviceAdmission | Refused = await self._asked("admit", self._gateway, dial)
        return found

    async def beat(self, beat: GatewayBeat) -> GatewayNews:
        news: GatewayNews = await self._asked("gateway_beat", beat)
        self.heard_at_s = time.monotonic()
        return news

    async def _asked(self, method: str, *arguments: object) -> Any:
        try:
            fleet = await self._fleet.handle()
            return await within(_FLEET_DEADLINE_S, getattr(fleet, method).remote(*arguments))
        except ActorDiedError as error:
            self._fleet.lost()
            raise FleetUnavailableError(type(error).__name__) from error
        except (TimeoutError, RayError, ValueError) as error:  # the last: no actor has the name
            raise FleetUnavailableError(type(error).__name__) from error


class GatewayActor:
    """Ends once no fleet has answered for a minute."""

    def __init__(self, name: str, settings: GatewaySettings, fleet: str, namespace: str) -> None:
        starting()
        write_events()
        self._settings, self._name = settings, name
        self._fleet = RayFleetLink(name, fleet, namespace)
        self._gateway: Gateway | None = None
        self._beginning: asyncio.Task[None] | None = None
        end_when_abandoned(lambda: self._fleet.heard_at_s, lambda: end_named(name, namespace))

    async def begin(self) -> None:
        """Listen, unless it does already: the fleet calls this again and again, as a process may be a new one.

        Raises:
            ConfigError: a file that the configuration names cannot be used, or the port is taken.
        """
        if self._gateway is not None and self._beginning is None:
            return
        if self._beginning is None or self._beginning.done():
            self._beginning = asyncio.create_task(self._begin())
        await asyncio.shield(self._beginning)
        self._beginning = None

    async def _begin(self) -> None:
        host = get_node_ip_address()  # type: ignore[no-untyped-call]
        gateway = await asyncio.to_thread(Gateway, self._name, self._settings.config, self._fleet, host)
        gateway.files.update(await asyncio.to_thread(_known_files, self._name, self._settings))
        try:
            await gateway.start(partial(prepared, self._name, self._settings))
        except BaseException:
            await gateway.stop()
            raise
        self._gateway = gateway
        started()

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:
        if self._gateway is None:
            return RelayOutcome.ELSEWHERE, b""
        return await self._gateway.ask(incarnation, call, most_bytes)

    async def end(self, incarnation: int, last: Refused | None) -> None:
        if self._gateway is not None:
            await self._gateway.end(incarnation, last)

    async def drain(self, others: tuple[str, ...]) -> None:
        if self._gateway is not None:
            await self._gateway.drain(others)


async def prepared(name: str, settings: GatewaySettings) -> Mapping[str, DrafterFile]:
    """Return each group's file, exported on this node where it is missing, by a process that ends: it needs torch."""
    found = dict[str, DrafterFile]()
    for group in settings.groups:
        path = Path(await run_once_here(_exported, group.model, settings.target))
        found[group.name] = replace(await asyncio.to_thread(drafter_file, path), is_for=group.may_join)
    plain = {group: [str(file.path), file.digest.hex(), file.size_bytes] for group, file in found.items()}
    await asyncio.to_thread(write_whole, _list_of(name), json.dumps(plain))
    return found


def _list_of(name: str) -> Path:
    """Return where an actor that is started anew finds its files, without the seconds that torch takes."""
    return outrider_home() / "exported" / f"{name}.json"


def _known_files(name: str, settings: GatewaySettings) -> dict[str, DrafterFile]:
    try:
        plain = json.loads(_list_of(name).read_text(encoding="utf-8"))
        may_join = {group.name: group.may_join for group in settings.groups}
        found = {
            group: DrafterFile(Path(path), bytes.fromhex(digest), size, may_join[group])
            for group, (path, digest, size) in plain.items()
        }
        return {group: file for group, file in found.items() if file.path.stat().st_size == file.size_bytes}
    except (OSError, LookupError, ValueError, TypeError, AttributeError):
        return {}


def _exported(model: str, target: str) -> str:
    from outrider.engines.onnx.kind import exported_file  # noqa: PLC0415 (in the exporting process only)

    return str(exported_file(model, target))


def drafter_file(path: Path) -> DrafterFile:
    with path.open("rb") as stream:
        return DrafterFile(path, hashlib.file_digest(stream, "sha256").digest(), path.stat().st_size)
