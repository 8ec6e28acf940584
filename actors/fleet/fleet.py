"""Leases drafters to generations and keeps drafters alive; rounds under way do not need it.

Drafters (``actors.fleet.drafter_care``) outlive a restart of the fleet: it finds them again by name, and their leases
through the coordinators' heartbeats. When no coordinator sends heartbeats any more the application is gone: the fleet
stops all drafters and ends (``actors.fleet.actor``).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from actors.fleet.coordinators import Coordinators, Held
from actors.fleet.dialled_device import GatewayCalls
from actors.fleet.drafter_actors import DrafterActors
from actors.fleet.drafter_care import DrafterCare
from actors.fleet.lease_table import LeaseTable
from actors.fleet.settings_order import SettingsOrder
from actors.fleet.timeouts import FleetTimeouts
from actors.gateway_beats import DeviceAdmission, DeviceDial, GatewayBeat, GatewayNews, GatewaySettings
from actors.heartbeats import FleetNews, Heartbeat, PackedStatus
from actors.messages import DrafterId, FleetStatus, FleetSums
from actors.waiting import loop_now_s
from outrider.config.gateway import GatewayConfig
from outrider.contracts.errors import FleetUnavailableError
from outrider.contracts.requests import GenerationId
from outrider.events import event
from outrider.wire.dialling import Refused

_SPARED = 16  # even when all are leased, one slot in so many may be kept spare, to be used again without a call

log = logging.getLogger(__name__)


class GatewayRunner(Protocol):
    """Keeps the configured gateways running; ``actors.fleet.gateway_actors`` does so as Ray actors."""

    def calls(self, name: str, /) -> GatewayCalls: ...

    def want(self, settings: GatewaySettings, /) -> frozenset[str]:
        """Keep these running and no others; return their names."""
        ...

    def look(self) -> None: ...

    @property
    def faults(self) -> Mapping[str, str]:
        """Why gateways cannot run, by name."""
        ...


class _NoGateways:
    faults: Mapping[str, str] = MappingProxyType({})

    def calls(self, name: str) -> GatewayCalls:
        raise KeyError(name)

    def want(self, _: GatewaySettings) -> frozenset[str]:
        return frozenset()

    def look(self) -> None: ...


NO_GATEWAYS = _NoGateways()


class Fleet:
    """The fleet actor's logic. All methods run on its event loop; ``actors`` makes the Ray calls that run drafters."""

    def __init__(
        self,
        actors: DrafterActors,
        timeouts: FleetTimeouts,
        note: Callable[[FleetSums], None] = lambda _: None,
        gateways: GatewayRunner = NO_GATEWAYS,
    ) -> None:
        """Start without drafters: a coordinator's first heartbeat carries the settings that say which are to run.

        ``note`` is called with the sums by group, about once per second while heartbeats arrive.
        """
        self._gateways = gateways
        self._note, self._noted_at_s = note, float("-inf")
        self._timeouts = timeouts
        self._table = LeaseTable()
        self._care = DrafterCare(actors, timeouts, self._table, gateways.calls)
        self._coordinators = Coordinators(timeouts.owner_ttl_s, random.getrandbits(48))
        self._order = SettingsOrder()
        self._sweeper: asyncio.Task[None] | None = None

    async def beat(self, heartbeat: Heartbeat) -> FleetNews:
        """Take in a coordinator's heartbeat; the newest coordinator's settings apply (``settings_order``)."""
        if self._sweeper is None:  # the constructor has no running loop
            self._sweeper = asyncio.create_task(self._sweep_for_ever())
        now_s, owner, settings = loop_now_s(), heartbeat.state.id, heartbeat.settings
        self._order.hear(owner, heartbeat.session, settings, heartbeat.settings_number, now_s)
        newest = self._order.newest
        if newest is not None and newest is not self._care.settings:
            self._care.want(newest)
            dialled = tuple(group for group in newest.groups if group.dials_in)
            gateways = GatewaySettings(newest.gateway or GatewayConfig(), dialled, newest.target)
            self._care.dialled.wanted = self._gateways.want(gateways)
        word = self._coordinators.hear(heartbeat, now_s)
        self._coordinators.forget_silent(now_s)
        if word is not None:
            self._table.renew(owner, word.held, now_s, word.changed)
        if now_s - self._noted_at_s >= self._timeouts.noted_s:
            self._noted_at_s = now_s
            self._care.dialled.sweep(now_s)
            self._note(self.sums())
        return self._answer(heartbeat, None if word is None else word.held)

    async def gateway_beat(self, beat: GatewayBeat) -> GatewayNews:
        return self._care.dialled.hear(beat, loop_now_s())

    async def admit(self, gateway: str, dial: DeviceDial) -> DeviceAdmission | Refused:
        """Let a device in that has dialled a gateway, or say why not."""
        return self._care.dialled.admit(gateway, dial, loop_now_s())

    def gateway_addresses(self) -> tuple[str, ...]:
        """Return where devices of gateways that are not wanted can go."""
        gateways, wanted = self._care.dialled.gateways.values(), self._care.dialled.wanted
        return tuple(state.address for state in gateways if state.takes_devices and state.name in wanted)

    async def locate(self, drafter: DrafterId) -> Any:
        """Return the handle of a drafter as it is now; None: there is none.

        Raises:
            FleetUnavailableError: this fleet was restarted, and gateways have not told yet who is with them.
        """
        found: Any = self._care.dialled.at(drafter) or self._care.known_handle(drafter)
        if found is None and not self._care.dialled.knows_gone(drafter, loop_now_s()):
            raise FleetUnavailableError(f"{drafter.actor_name} is not known yet")
        return found

    def _answer(self, heartbeat: Heartbeat, held: Held | None) -> FleetNews:
        table, timeouts, coordinators = self._table, self._timeouts, len(self._coordinators)
        news = replace(self._coordinators.news(heartbeat.known), settings_number=self._order.number(heartbeat.state.id))
        if held is None:
            return replace(news, tell_all=True)
        withdrawn = [name for name in heartbeat.spare if not self._may_be_used(held.get(name))]
        for name in withdrawn:
            table.release(name)
        most_spare = None
        if coordinators >= timeouts.spares_from:
            most_spare = max(table.room // 2, table.places // _SPARED) // coordinators
        places = []
        for name in heartbeat.wanted[: most_spare or 0]:
            drafter = table.lease(name, owner=heartbeat.state.id)
            handle = self._care.known_handle(drafter)
            if drafter is not None and handle is not None:  # every ready drafter has a handle
                places.append((name, drafter, handle))
        beat_s = min(max(timeouts.beat_s, coordinators / timeouts.beats_per_s), timeouts.most_beat_s)
        return replace(news, beat_s=beat_s, most_spare=most_spare, places=tuple(places), withdrawn=tuple(withdrawn))

    def _may_be_used(self, drafter: DrafterId | None) -> bool:
        return drafter is not None and self._table.is_ready(drafter)

    async def status(self) -> FleetStatus:
        return self.packed_status().read()

    def packed_status(self) -> PackedStatus:
        """Return the status undecoded, so that the caller's process decodes it and not the fleet's."""
        self._coordinators.forget_silent(loop_now_s())
        dialled = self._care.dialled
        rows = self._table.rows(self._care.held.numbers, dialled.status_of)
        return PackedStatus(rows, tuple(self._coordinators.reports()), dialled.gateways_status(self._gateways.faults))

    def sums(self) -> FleetSums:
        dialled, settings = self._care.dialled, self._care.settings.gateway
        wanted = 0 if settings is None else settings.actors
        identities = ((one.drafter, one.dial.identity) for one in dialled.all)
        return replace(
            self._table.sums(),
            sent=dict(self._care.held.segments.groups),
            carried_bytes=dict(dialled.carried_bytes),
            refused=dict(dialled.refused),
            strikes=self._care.standings.worst(identities, loop_now_s()),
            gateways={"wanted": wanted, "running": len(dialled.gateways.keys() & dialled.wanted)} if wanted else {},
        )

    async def lease(
        self,
        generation: GenerationId,
        exclude: Collection[DrafterId] = (),
        owner: str = "",
        groups: Collection[str] | None = None,
    ) -> tuple[DrafterId, Any] | None:
        """Lease the least loaded ready drafter of ``groups`` (None: of all) and return it with its handle.

        None if no such drafter has a free slot, or its actor cannot be reached.
        """
        drafter = self._table.lease(generation, exclude, owner, groups)
        if drafter is None:
            return None
        handle = await self._care.handle(drafter)
        return None if handle is None else (drafter, handle)

    async def release(self, generation: GenerationId) -> None:
        self._table.release(generation)

    async def report_lost(self, drafter: DrafterId) -> None:
        """Probe a drafter that did not answer a coordinator; see ``DrafterCare.lost``."""
        self._care.lost(drafter)

    async def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """Test a drafter that sent an invalid answer or failed at a generation; see ``DrafterCare.broken``."""
        self._care.broken(drafter, fault, generation)

    async def _sweep_for_ever(self) -> None:
        """End the leases of silent coordinators and check all drafters that run, once per ``sweep_s``."""
        while True:
            await asyncio.sleep(self._timeouts.sweep_s)
            ended = self._table.expire(loop_now_s(), self._timeouts.owner_ttl_s)
            if ended:
                event(log, "leases_expired", logging.WARNING, leases=len(ended))
            self._care.look()
            self._gateways.look()
