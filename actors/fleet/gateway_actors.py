"""Runs gateways as detached named Ray actors, which are named after what they were made from: others are replaced."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from actors.abandoned import end_named
from actors.gateway_beats import GatewaySettings
from actors.gateway_link import RelayOutcome
from actors.head_actors import named_actor
from actors.heartbeats import FLEET_VERSION
from actors.waiting import Named, loop_now_s, within
from outrider import __version__
from outrider.contracts.errors import OutriderError
from outrider.events import event
from outrider.wire.dialling import Refused

_PREFIX = "gateway-"
_KEPT_EVERY_S = 1.0
_BEGIN_DEADLINE_S = 60.0
_DRAIN_DEADLINE_S = 20.0
_REPLACED_IN_S = 60.0
_ASK_DEADLINE_S = 45.0  # a gateway answers within 40
_MOST_REASON_CHARS = 300

log = logging.getLogger(__name__)


class RayGatewayCalls:
    """A gateway actor, as the fleet calls it."""

    def __init__(self, name: str, namespace: str) -> None:
        self._actor = Named(lambda: ray.get_actor(name, namespace=namespace))
        self._ending = set[asyncio.Task[None]]()

    async def ask(self, incarnation: int, call: bytes, most_bytes: int) -> tuple[RelayOutcome, bytes]:
        """Relay a call; a gateway that is gone, or says nothing, has no device, which may be elsewhere then."""
        try:
            actor = await self._actor.handle()
            asked = actor.ask.remote(incarnation, call, most_bytes)
            found: tuple[RelayOutcome, bytes] = await within(_ASK_DEADLINE_S, asked)
        except (TimeoutError, RayError, ValueError):
            self._actor.lost()
            return RelayOutcome.ELSEWHERE, b""
        return found

    def end(self, incarnation: int, last: Refused | None) -> None:
        task = asyncio.create_task(self._end(incarnation, last))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, incarnation: int, last: Refused | None) -> None:
        try:
            (await self._actor.handle()).end.remote(incarnation, last)
        except (TimeoutError, RayError, ValueError):  # if it lives, its next heartbeat is told
            self._actor.lost()


class GatewayActors:
    def __init__(self, fleet: str, namespace: str, addresses: Callable[[], tuple[str, ...]]) -> None:
        """``fleet`` is the fleet's actor name; ``addresses`` returns where devices of others can go."""
        self._fleet, self._namespace, self._addresses = fleet, namespace, addresses
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._wanted_at_s = 0.0  # since when these are kept
        self.faults: dict[str, str] = {}  # why gateways cannot run, by name

    def calls(self, name: str) -> RayGatewayCalls:
        return RayGatewayCalls(name, self._namespace)

    def want(self, settings: GatewaySettings) -> frozenset[str]:
        """Keep these gateways running and no others; return their names."""
        made_from = hashlib.sha256(repr((__version__, FLEET_VERSION, settings)).encode()).hexdigest()[:8]
        wanted = {f"{_PREFIX}{made_from}-{i}" for i in range(settings.config.actors)}
        for name in self._keeping.keys() - wanted:
            self._keeping.pop(name).cancel()
            self.faults.pop(name, None)
        for name in wanted - self._keeping.keys():
            self._wanted_at_s = loop_now_s()
            self._keeping[name] = asyncio.create_task(self._keep(name, settings))
        return frozenset(wanted)

    def look(self) -> None:
        """Stop gateways that are not wanted, in the background; a head that is away may hold it up for long.

        Not before there are others, but for a minute at most: a node may not have room for both.
        """
        is_replaced = not self._keeping or self._addresses() or loop_now_s() - self._wanted_at_s > _REPLACED_IN_S
        if is_replaced and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.create_task(self._stop_strangers())

    def end_all(self) -> None:
        """Kill all gateways for good. Blocks while the head is away."""
        for name in self._running():
            end_named(name, self._namespace)

    async def _keep(self, name: str, settings: GatewaySettings) -> None:
        """Have it listen, and again when Ray has started it anew."""
        while True:
            try:
                handle = await asyncio.to_thread(self._find, name, settings)
                await within(_BEGIN_DEADLINE_S, handle.begin.remote())
                self.faults.pop(name, None)
            except (TimeoutError, RayError, OutriderError) as error:
                reason = str(getattr(error, "cause", None) or type(error).__name__)[:_MOST_REASON_CHARS]
                if self.faults.get(name) != reason:
                    event(log, "gateway_cannot_start", logging.ERROR, gateway=name, reason=reason)
                self.faults[name] = reason
            await asyncio.sleep(_KEPT_EVERY_S)

    def _find(self, name: str, settings: GatewaySettings) -> Any:
        from actors.gateway.actor import GatewayActor  # noqa: PLC0415 (its web server is imported there only)

        arguments = name, settings, self._fleet, self._namespace
        return named_actor(GatewayActor, name, self._namespace, settings.config.resources, *arguments)

    async def _stop_strangers(self) -> None:
        try:
            for name in await asyncio.to_thread(self._running):
                if name not in self._keeping:
                    event(log, "gateway_not_wanted", logging.WARNING, gateway=name)
                    await self._drained(name)
                    await asyncio.to_thread(end_named, name, self._namespace)
        except Exception:
            log.exception("looking_failed")

    async def _drained(self, name: str) -> None:
        try:
            actor = await asyncio.to_thread(ray.get_actor, name, namespace=self._namespace)
            await within(_DRAIN_DEADLINE_S, actor.drain.remote(self._addresses()))
        except (TimeoutError, RayError, ValueError):
            return

    def _running(self) -> list[str]:
        named: list[dict[str, str]] = list_named_actors(all_namespaces=True)
        here = (each["name"] for each in named if each["namespace"] == self._namespace)
        return [name for name in here if name.startswith(_PREFIX)]
