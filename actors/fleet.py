"""The fleet actor: knows which drafters are alive, leases them to generations, looks after them. Off the round path.

Drafters (``actors.drafter_care``) outlive a restart of the fleet: it finds them again by name, and the leases through
the coordinators' heartbeats. A fleet that no coordinator tells of anything any more stops all drafters and ends, as its
application is gone.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Any

from actors.drafter_actors import DrafterActors
from actors.drafter_care import DrafterCare
from actors.fleet_pace import FleetPace
from actors.lease_table import LeaseTable
from actors.messages import CoordinatorReport, CoordinatorState, DrafterId, FleetNews, FleetStatus, Heartbeat
from outrider.contracts.requests import GenerationId
from outrider.events import event

_SPARED = 16  # of so many places one may be at hand even where all are taken, to be used again without a call

log = logging.getLogger(__name__)


def _state_of(report: CoordinatorReport) -> CoordinatorState:
    return CoordinatorState(report.id, report.verifier, report.target)


def _now_s() -> float:
    """Monotonic: the running loop's clock, which its timers go by."""
    return asyncio.get_running_loop().time()


class Fleet:
    """What the fleet actor does, over whatever runs the drafters."""

    def __init__(
        self, actors: DrafterActors, pace: FleetPace, note: Callable[[FleetStatus], None] = lambda _: None
    ) -> None:
        """Know nothing: which drafters are to run is told by the first heartbeat of a coordinator.

        ``note`` is told how things stand, about every second.
        """
        self._note, self._noted_at_s = note, float("-inf")
        self._pace = pace
        self._table = LeaseTable()
        self._care = DrafterCare(actors, pace, self._table)
        self._reports: dict[str, tuple[float, CoordinatorReport]] = {}  # the longest silent first
        self._news = random.getrandbits(48)  # so that another fleet's number is none of this one's
        self._sweeper: asyncio.Task[None] | None = None

    async def beat(self, heartbeat: Heartbeat) -> FleetNews:
        """Hear from a coordinator; the newest one's settings hold."""
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_for_ever())
        now_s, report = _now_s(), heartbeat.report
        if heartbeat.settings.since_s > self._care.settings.since_s:
            self._care.want(heartbeat.settings)
        before = self._reports.pop(report.id, None)
        self._reports[report.id] = now_s, report
        if before is None or _state_of(before[1]) != _state_of(report):
            self._news += 1
        self._forget_silent(now_s)
        self._table.renew(report.id, heartbeat.held, now_s)
        if now_s - self._noted_at_s >= self._pace.noted_s:
            self._noted_at_s = now_s
            self._note(await self.status())
        return self._answer(heartbeat)

    def _answer(self, heartbeat: Heartbeat) -> FleetNews:
        table, pace, coordinators = self._table, self._pace, len(self._reports)
        withdrawn = [name for name in heartbeat.spare if not self._may_be_used(heartbeat.held.get(name))]
        for name in withdrawn:
            table.release(name)
        most_spare = None
        if coordinators >= pace.spares_from:
            most_spare = max(table.room // 2, table.places // _SPARED) // coordinators
        places = []
        for name in heartbeat.wanted[: most_spare or 0]:
            drafter = table.lease(name, owner=heartbeat.report.id)
            handle = self._care.known_handle(drafter)
            if drafter is not None and handle is not None:  # as whoever is ready has
                places.append((name, drafter, handle))
        return FleetNews(
            number=self._news,
            coordinators=None if heartbeat.news == self._news else self._states(),
            beat_s=min(max(pace.beat_s, coordinators / pace.beats_per_s), pace.most_beat_s),
            most_spare=most_spare,
            places=tuple(places),
            withdrawn=tuple(withdrawn),
        )

    def _may_be_used(self, drafter: DrafterId | None) -> bool:
        return drafter is not None and self._table.is_ready(drafter)

    def _states(self) -> tuple[CoordinatorState, ...]:
        return tuple(_state_of(self._reports[name][1]) for name in sorted(self._reports))

    def _forget_silent(self, now_s: float) -> None:
        while self._reports:
            name, (at_s, _) = next(iter(self._reports.items()))
            if now_s - at_s < self._pace.owner_ttl_s:
                break
            del self._reports[name]
            self._news += 1

    async def status(self) -> FleetStatus:
        """Drafters and coordinators that are alive, by name."""
        self._forget_silent(_now_s())
        return FleetStatus(
            drafters=self._table.statuses(self._care.held),
            coordinators=tuple(self._reports[name][1] for name in sorted(self._reports)),
        )

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
            await asyncio.sleep(self._pace.sweep_s)
            ended = self._table.expire(_now_s(), self._pace.owner_ttl_s)
            if ended:
                event(log, "leases_expired", logging.WARNING, leases=len(ended))
            self._care.look()
