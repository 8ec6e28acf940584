"""The fleet actor: knows which drafters are alive, leases them to generations, looks after them. Off the round path.

Drafters (``actors.drafter_care``) outlive a restart of the fleet: it finds them again by name, and the leases through
the coordinators' heartbeats. A fleet that no coordinator tells of anything any more stops all drafters and ends, as its
application is gone.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from actors.coordinators import Coordinators, Held
from actors.drafter_actors import DrafterActors
from actors.drafter_care import DrafterCare
from actors.fleet_timeouts import FleetTimeouts
from actors.heartbeats import FleetNews, Heartbeat, PackedStatus
from actors.lease_table import LeaseTable
from actors.messages import DrafterId, FleetStatus, FleetSums
from actors.settings_order import SettingsOrder
from actors.waiting import loop_now_s
from outrider.contracts.requests import GenerationId
from outrider.events import event

_AGAIN_S = 0.1  # between two heartbeats, where the fleet has to hear everything
_SPARED = 16  # of so many places one may be at hand even where all are taken, to be used again without a call

log = logging.getLogger(__name__)


class Fleet:
    """What the fleet actor does, over whatever runs the drafters."""

    def __init__(
        self, actors: DrafterActors, timeouts: FleetTimeouts, note: Callable[[FleetSums], None] = lambda _: None
    ) -> None:
        """Know nothing: which drafters are to run is told by the first heartbeat of a coordinator.

        ``note`` is told how things stand, about every second.
        """
        self._note, self._noted_at_s = note, float("-inf")
        self._timeouts = timeouts
        self._table = LeaseTable()
        self._care = DrafterCare(actors, timeouts, self._table)
        self._coordinators = Coordinators(timeouts.owner_ttl_s, random.getrandbits(48))
        self._order = SettingsOrder()
        self._sweeper: asyncio.Task[None] | None = None

    async def beat(self, heartbeat: Heartbeat) -> FleetNews:
        """Hear from a coordinator; the newest one's settings hold (``settings_order``)."""
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_for_ever())
        now_s, owner, settings = loop_now_s(), heartbeat.state.id, heartbeat.settings
        self._order.hear(owner, heartbeat.session, settings, heartbeat.settings_number, now_s)
        newest = self._order.newest
        if newest is not None and newest is not self._care.settings:
            self._care.want(newest)
        word = self._coordinators.hear(heartbeat, now_s)
        self._coordinators.forget_silent(now_s)
        if word is not None:
            self._table.renew(owner, word.held, now_s, word.changed)
        if now_s - self._noted_at_s >= self._timeouts.noted_s:
            self._noted_at_s = now_s
            self._note(self._sums())
        return self._answer(heartbeat, None if word is None else word.held)

    def _answer(self, heartbeat: Heartbeat, held: Held | None) -> FleetNews:
        table, timeouts, coordinators = self._table, self._timeouts, len(self._coordinators)
        changes, number = self._coordinators.news(heartbeat.known), self._order.number(heartbeat.state.id)
        if held is None:
            news = FleetNews(changes.mark, _AGAIN_S, changes.changed, changes.gone, changes.anew, tell_all=True)
            return replace(news, settings_number=number)
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
            if drafter is not None and handle is not None:  # as whoever is ready has
                places.append((name, drafter, handle))
        return FleetNews(
            mark=changes.mark,
            beat_s=min(max(timeouts.beat_s, coordinators / timeouts.beats_per_s), timeouts.most_beat_s),
            changed=changes.changed,
            gone=changes.gone,
            anew=changes.anew,
            most_spare=most_spare,
            places=tuple(places),
            withdrawn=tuple(withdrawn),
            settings_number=number,
        )

    def _may_be_used(self, drafter: DrafterId | None) -> bool:
        return drafter is not None and self._table.is_ready(drafter)

    async def status(self) -> FleetStatus:
        """Drafters and coordinators that are alive, by name."""
        return self.packed_status().read()

    def packed_status(self) -> PackedStatus:
        """The same, to be read by who asked."""
        self._coordinators.forget_silent(loop_now_s())
        return PackedStatus(self._table.rows(self._care.held), tuple(self._coordinators.reports()))

    async def sums(self) -> FleetSums:
        """Drafters and leases by group."""
        return self._sums()

    def _sums(self) -> FleetSums:
        return replace(self._table.sums(), sent=dict(self._care.sent))

    async def lease(
        self,
        generation: GenerationId,
        exclude: Collection[DrafterId] = (),
        owner: str = "",
        groups: Collection[str] | None = None,
    ) -> tuple[DrafterId, Any] | None:
        """Lease the least loaded ready drafter, of ``groups`` if any are named, and tell its handle.

        None if there is none with room.
        """
        drafter = self._table.lease(generation, exclude, owner, groups)
        if drafter is None:
            return None
        handle = await self._care.handle(drafter)
        return None if handle is None else (drafter, handle)

    async def release(self, generation: GenerationId) -> None:
        """End a generation's lease."""
        self._table.release(generation)

    async def report_lost(self, drafter: DrafterId) -> None:
        """Told that a drafter did not answer: no new leases on it until it has proved to be alive."""
        self._care.lost(drafter)

    async def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """Told that a drafter answers a generation nonsense, or fails at it: it has to prove itself.

        If several say so it is stopped, and started anew after a while.
        """
        self._care.broken(drafter, fault, generation)

    async def _sweep_for_ever(self) -> None:
        """Forget silent coordinators, and look after drafters that are there, wanted or not."""
        while True:
            await asyncio.sleep(self._timeouts.sweep_s)
            ended = self._table.expire(loop_now_s(), self._timeouts.owner_ttl_s)
            if ended:
                event(log, "leases_expired", logging.WARNING, leases=len(ended))
            self._care.look()
