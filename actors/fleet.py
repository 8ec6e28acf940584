"""The fleet actor: starts the drafters, knows which are alive, leases them to generations. Off the round path.

Drafters are detached named actors, so that they outlive a restart of the fleet: it finds them again by name, and the
leases through the coordinators' heartbeats. A drafter whose resources (``jetson``) are not in the cluster yet simply
becomes ready when they join. One that fails the handshake, or answers nonsense, is refused: stopped, and started anew
after a while. What runs and is not wanted is stopped, whoever started it; a fleet that no coordinator tells of anything
any more stops all drafters and ends, as its application is gone.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from actors.drafter_actors import DrafterActors
from actors.handshake import handshake_fault
from actors.lease_table import LeaseTable
from actors.messages import (
    CoordinatorReport,
    CoordinatorState,
    DrafterId,
    FleetNews,
    FleetSettings,
    FleetStatus,
    Heartbeat,
)
from actors.ray_errors import last_line
from actors.standing import Standing
from actors.waiting import within
from outrider.config.schema import DrafterGroupConfig
from outrider.contracts.errors import DrafterBrokenError, OutriderError
from outrider.contracts.requests import GenerationId
from outrider.events import event
from outrider.models.head_file import HeadInfo

_SPARED = 16  # of so many places one may be at hand even where all are taken, to be used again without a call

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FleetPace:
    """How long the fleet waits for what."""

    probe_deadline_s: float = 5.0
    proof_deadline_s: float = 30.0  # of a draft of one token
    restart_poll_s: float = 1.0
    retry_s: float = 15.0  # until a refused drafter is started anew
    most_pause_s: float = 60.0  # of one that was taken out again and again
    beat_s: float = 1.0  # between two heartbeats of a coordinator,
    beats_per_s: int = 400  # longer where there would be more of all of them,
    most_beat_s: float = 3.0  # within the times in which others expect to hear of it
    owner_ttl_s: float = 10.0
    sweep_s: float = 5.0
    asked_per_s: int = 200  # drafters that are asked what they hold, at most
    noted_s: float = 1.0  # how often its gauges are set
    spares_from: int = 50  # coordinators: from so many on they keep places at hand, rather than ask for each


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
        self._stopping: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None  # for drafters that are not wanted
        self._actors = actors
        self._pace = pace
        self._settings = FleetSettings((), "", "", since_s=0.0)
        self._table = LeaseTable()
        self._groups: dict[DrafterId, tuple[DrafterGroupConfig, str]] = {}  # and the target; whatever the group's count
        self._handles: dict[DrafterId, ActorHandle[Any]] = {}  # of those that were ready
        self._model_hashes: dict[str, str] = {}  # by group, of the drafters that are ready
        self._reports: dict[str, tuple[float, CoordinatorReport]] = {}  # the longest silent first
        self._news = random.getrandbits(48)  # so that another fleet's number is none of this one's
        self._held: dict[DrafterId, int] = {}  # generations in each drafter's memory
        self._asking: asyncio.Task[None] | None = None  # what they hold
        self._suspects: set[tuple[DrafterId, GenerationId]] = set()  # held and leased by nobody, when last asked
        self._standings: dict[DrafterId, Standing] = {}
        self._watchers: dict[DrafterId, asyncio.Task[None]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    async def beat(self, heartbeat: Heartbeat) -> FleetNews:
        """Hear from a coordinator; the newest one's settings hold."""
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_for_ever())
        now_s, report = _now_s(), heartbeat.report
        if heartbeat.settings.since_s > self._settings.since_s:
            self._settings = heartbeat.settings
            self._apply_groups()
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
            if drafter in self._handles:  # as whoever is ready
                places.append((name, drafter, self._handles[drafter]))
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
            drafters=self._table.statuses(self._held),
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
        if drafter not in self._handles:  # a lease from before this fleet was restarted
            handle = await self._find(drafter)
            if drafter not in self._groups:  # it was removed meanwhile
                return None
            self._handles.setdefault(drafter, handle)
        return drafter, self._handles[drafter]

    async def release(self, generation: GenerationId) -> None:
        """End a generation's lease."""
        self._table.release(generation)

    async def report_lost(self, drafter: DrafterId) -> None:
        """Told that a drafter did not answer: no new leases on it until it has proved to be alive."""
        if self._idle(drafter):
            self._table.mark_suspect(drafter)
            self._watch(drafter, self._recover(drafter))

    async def report_broken(self, drafter: DrafterId, fault: str, generation: GenerationId) -> None:
        """Told that a drafter answers a generation nonsense, or fails at it: it has to prove itself.

        If several say so it is stopped, and started anew after a while.
        """
        if self._idle(drafter):
            self._table.mark_suspect(drafter)
            self._standings[drafter] = standing = self._standings.get(drafter, Standing()).doubted(generation)
            self._watch(drafter, self._replace(drafter, fault) if standing.broken else self._recover(drafter))

    def _apply_groups(self) -> None:
        """Start what the settings name, stop what they do not name any more or name differently."""
        settings = self._settings
        wanted = {
            DrafterId(group.name, i): (replace(group, count=0), settings.target)
            for group in settings.groups
            for i in range(group.count)
        }
        changed: set[DrafterId] = set()
        for drafter, run_as in list(self._groups.items()):
            if wanted.get(drafter) != run_as:
                self._watchers.pop(drafter).cancel()
                self._table.remove(drafter)
                del self._groups[drafter]
                self._handles.pop(drafter, None)
                self._model_hashes.pop(drafter.group, None)
                if drafter in wanted:
                    changed.add(drafter)
                else:
                    self._stop(drafter)
        for drafter, run_as in wanted.items():
            if drafter not in self._groups:
                self._groups[drafter] = run_as
                self._table.add(drafter, run_as[0].max_generations)
                self._watch(drafter, self._bring_up(drafter, anew=drafter in changed))

    def _stop(self, drafter: DrafterId) -> None:
        """Nobody waits for it; if it fails, the next sweep finds the drafter."""
        stopping = asyncio.create_task(self._stopped(drafter))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def _stopped(self, drafter: DrafterId) -> None:
        try:
            await self._actors.stop(drafter)
        except Exception:
            log.exception("stopping_failed")

    def _watch(self, drafter: DrafterId, work: Coroutine[Any, Any, None]) -> None:
        self._watchers[drafter] = asyncio.create_task(self._watched(drafter, work))

    async def _watched(self, drafter: DrafterId, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; whatever goes wrong, then and behind it, the drafter is tried again."""
        while True:
            try:
                await work
            except Exception as error:
                log.exception("watching_failed")
                self._take_out(drafter, fault := f"cannot be watched: {error!r:.200}")
            else:
                return
            await asyncio.sleep(self._pace.restart_poll_s)  # what goes wrong at once is not tried all the time
            work = self._replace(drafter, fault)

    def _idle(self, drafter: DrafterId) -> bool:
        """Whether nobody looks after a drafter already."""
        return drafter in self._watchers and self._watchers[drafter].done()

    async def _bring_up(self, drafter: DrafterId, *, anew: bool = False) -> None:
        """Wait until the drafter has loaded its model, however long its node takes to join or it takes to restart.

        One that is to run otherwise than before is started ``anew``.
        """
        if anew:
            await self._actors.stop(drafter)
        while True:
            handle = await self._find(drafter)
            try:
                card = await handle.card.remote()
            except ActorUnavailableError:
                await asyncio.sleep(self._pace.restart_poll_s)
            except RayError as error:
                await self._refuse(drafter, f"cannot be started: {last_line(error)}")
            except DrafterBrokenError as error:
                await self._refuse(drafter, f"cannot be started: {error}")
            else:
                of_group = self._table.has_ready(drafter.group)
                expected_hash = self._model_hashes.get(drafter.group) if of_group else None
                fault = handshake_fault(card, self._settings.token_map_hash, expected_hash, self._head(drafter))
                if fault is None and not await self._proves_itself(drafter, handle):
                    continue
                if fault is None:
                    self._model_hashes[drafter.group] = card.model_hash
                    self._handles[drafter] = handle
                    self._table.mark_ready(drafter)
                    event(log, "drafter_ready", drafter=drafter.actor_name, model=card.model_hash[:12])
                    return
                await self._refuse(drafter, fault)

    async def _proves_itself(self, drafter: DrafterId, handle: Any) -> bool:
        """Have it draft a token, through its engine. One that hangs is killed, and one that fails refused."""
        try:
            await within(self._pace.proof_deadline_s, handle.prove.remote())
        except RayActorError:
            await asyncio.sleep(self._pause_s(drafter, self._pace.restart_poll_s))
        except TimeoutError:
            self._end_leases(drafter, "hung")
            await self._actors.restart(handle)
            await asyncio.sleep(self._pause_s(drafter, self._pace.restart_poll_s))
        except (RayError, OutriderError) as error:
            reason = last_line(error) if isinstance(error, RayError) else str(error)
            await self._refuse(drafter, f"cannot draft: {reason}")
        else:
            return True
        return False

    def _pause_s(self, drafter: DrafterId, first_s: float) -> float:
        """It is taken out once more: how long until it is tried again."""
        self._standings[drafter] = standing = self._standings.get(drafter, Standing()).struck(_now_s())
        return standing.pause_s(first_s, self._pace.most_pause_s, random.random())  # noqa: S311 (nothing to guess)

    def _head(self, drafter: DrafterId) -> HeadInfo | None:
        models = {group.name: group.model for group in self._settings.groups}
        return self._settings.heads.get(models.get(drafter.group, ""))

    async def _recover(self, drafter: DrafterId) -> None:
        """Probe a suspect. One that is gone restarts by itself; one that hangs or is broken is killed, and restarts."""
        handle = await self._find(drafter)
        try:
            await within(self._pace.probe_deadline_s, handle.card.remote())
        except RayActorError:
            self._end_leases(drafter, "died")
        except (TimeoutError, RayError, DrafterBrokenError):
            self._end_leases(drafter, "hung")
            await self._actors.restart(handle)
            await asyncio.sleep(self._pause_s(drafter, self._pace.restart_poll_s))
        await self._bring_up(drafter)

    async def _replace(self, drafter: DrafterId, fault: str) -> None:
        await self._refuse(drafter, fault)
        await self._bring_up(drafter)

    async def _refuse(self, drafter: DrafterId, reason: str) -> None:
        """Take a drafter out of service for a while; what runs in its place is then started from the configuration."""
        self._take_out(drafter, reason)
        await self._actors.stop(drafter)
        await asyncio.sleep(self._pause_s(drafter, self._pace.retry_s))

    def _take_out(self, drafter: DrafterId, reason: str) -> None:
        orphans = self._table.mark_refused(drafter, reason)
        event(log, "drafter_refused", logging.ERROR, drafter=drafter.actor_name, reason=reason, leases=len(orphans))

    def _end_leases(self, drafter: DrafterId, cause: str) -> None:
        orphans = self._table.mark_lost(drafter)
        event(log, "drafter_lost", logging.WARNING, drafter=drafter.actor_name, cause=cause, leases=len(orphans))

    async def _sweep_for_ever(self) -> None:
        """Forget silent coordinators, and look after drafters that are there, wanted or not."""
        while True:
            await asyncio.sleep(self._pace.sweep_s)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._stop_strangers())
            ended = self._table.expire(_now_s(), self._pace.owner_ttl_s)
            if ended:
                event(log, "leases_expired", logging.WARNING, leases=len(ended))
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask_all())

    async def _stop_strangers(self) -> None:
        """Of a fleet before this one, or not stopped when they were removed. A head that is away is waited for."""
        try:
            for drafter in await self._actors.running():
                if drafter not in self._groups:
                    event(log, "drafter_not_wanted", logging.WARNING, drafter=drafter.actor_name)
                    self._stop(drafter)
        except Exception:
            log.exception("looking_failed")

    async def _ask_all(self) -> None:
        """Ask drafters what they hold, a second's worth at a time; what twice nobody had leased is to be forgotten."""
        drafters, at_once = list(self._table.loads()), self._pace.asked_per_s
        found = set[tuple[DrafterId, GenerationId]]()
        try:
            for first in range(0, len(drafters), at_once):
                if first:
                    await asyncio.sleep(1.0)
                some = drafters[first : first + at_once]
                unleased = await asyncio.gather(*map(self._unleased, some))
                now = {(drafter, name) for drafter, names in zip(some, unleased, strict=True) for name in names}
                for drafter, generation in now & self._suspects:
                    self._have_forgotten(drafter, generation)
                found |= now
        except Exception:  # the next time it may be better
            log.exception("asking_failed")
        self._suspects = found

    def _have_forgotten(self, drafter: DrafterId, generation: GenerationId) -> None:
        if drafter in self._handles:
            event(log, "generation_orphaned", logging.WARNING, drafter=drafter.actor_name, generation=generation)
            self._handles[drafter].close.remote(generation)

    async def _find(self, drafter: DrafterId) -> Any:
        return await self._actors.find(drafter, *self._groups[drafter])

    async def _unleased(self, drafter: DrafterId) -> frozenset[GenerationId]:
        try:
            answer: Any = await within(self._pace.probe_deadline_s, self._handles[drafter].held.remote())
            held = frozenset(map(str, answer))
        except (TimeoutError, RayError, OutriderError, TypeError, KeyError):  # gone, hung, nonsense, or removed
            await self.report_lost(drafter)
            return frozenset()
        self._held[drafter] = len(held)
        return self._table.unleased(drafter, held) if drafter in self._groups else frozenset()
