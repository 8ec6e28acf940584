"""CPU time of a fleet's calls: unpickling, executing, pickling the answer. Ray's own part comes on top."""

import asyncio
import pickle
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count, cycle
from typing import Any

from actors.fleet.fleet import Fleet
from actors.fleet.timeouts import FleetTimeouts
from actors.heartbeats import NewsMark, PackedStatus
from actors.messages import DrafterId, DrafterState
from lab.bench.fleet.traffic import Flow, traffic
from lab.bench.fleet.world import Caller, VirtualActors, all_known, callers_of, settings_of

_FOR_EVER_S = 1e9
# No coordinator times out while something else is measured.
_PACE = FleetTimeouts(owner_ttl_s=_FOR_EVER_S)
_LOOK_S = 0.005
_LATER = 10**6  # heartbeat number above all measured ones
_LEASING = 0  # the caller whose responses come and go


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a fleet: ``each`` streams per coordinator, ``places`` for streams at each drafter."""

    drafters: int
    streams: int
    each: int
    places: int

    @property
    def coordinators(self) -> int:
        """Number of coordinators for the streams."""
        return -(-self.streams // self.each)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of calls of one kind."""

    what: str
    calls: int
    cpu_s: float  # of all of them
    sent_bytes: int = 0  # of one call and its answer
    answered_bytes: int = 0

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.cpu_s / max(1, self.calls)


@dataclass(frozen=True, slots=True)
class Start:
    """A fleet that starts with no state: CPU seconds until all drafters are ready, and all leases are known again."""

    what: str
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one size. ``asked_per_s``: drafters that the fleet polls for what they hold."""

    size: Size
    costs: tuple[Cost, ...]
    starts: tuple[Start, ...]
    one_by_one: Flow
    in_bulk: Flow
    asked_per_s: float
    background_cpu_share: float


@dataclass(frozen=True, slots=True)
class Effort:
    """Duration of each measurement: of each kind of call; without calls; and virtual traffic with warm-up."""

    call_s: float
    watch_s: float
    warmup_s: float
    traffic_s: float
    response_s: float  # mean length of a response in the traffic


async def measured(size: Size, effort: Effort) -> Figures:
    """Start a fleet, crash it, and call its successor as coordinators do."""
    settings, actors, budget_s = settings_of(size.drafters, size.places), VirtualActors(), effort.call_s
    callers = callers_of(settings, size.drafters, size.streams, size.each)
    begun = await _started("drafters brought up", Fleet(actors, _PACE), size.drafters, [_without_leases(callers[0])])
    for caller in callers:
        for generation, drafter in caller.held.items():
            assert drafter is not None, "callers know their drafters"
            actors.processes[drafter].generations.add(generation)
    fleet = Fleet(actors, _PACE)
    recovered = await _started("crashed: all leases known", fleet, size.drafters, callers)
    costs = [
        await _cost(
            "heartbeat of everything",
            fleet.beat,
            (caller.everything(beats) for beats, caller in _rounds(callers)),
            budget_s,
        ),
        await _cost("heartbeat", fleet.beat, _unchanged(callers, await all_known(fleet.beat, callers[0])), budget_s),
        *await _lease_costs(fleet, callers[_LEASING], budget_s),
        await _cost("status", _status_of(fleet), cycle([pickle.dumps(())]), budget_s),
    ]
    asked_before, cpu_before_s, began_s = actors.asked, time.process_time(), time.perf_counter()
    await asyncio.sleep(effort.watch_s)
    took_s = time.perf_counter() - began_s
    asked_per_s = (actors.asked - asked_before) / took_s
    share = (time.process_time() - cpu_before_s) / took_s
    one_by_one, in_bulk = [
        await _flow(replace(_PACE, spares_from=spares_from), actors, callers, effort)
        for spares_from in (sys.maxsize, _PACE.spares_from)
    ]
    reported = await _cost("lost drafter reported", fleet.report_lost, _lost(settings_ids(size)), budget_s)
    return Figures(size, (*costs, reported), (begun, recovered), one_by_one, in_bulk, asked_per_s, share)


def _status_of(fleet: Fleet) -> Callable[[], Awaitable[PackedStatus]]:
    async def status() -> PackedStatus:
        return fleet.packed_status()

    return status


async def _flow(pace: FleetTimeouts, actors: VirtualActors, callers: list[Caller], effort: Effort) -> Flow:
    fleet = Fleet(actors, pace)
    await _started("", fleet, len(actors.processes), callers)
    return await traffic(fleet, callers, effort.response_s, effort.warmup_s, effort.traffic_s)


def settings_ids(size: Size) -> list[DrafterId]:
    groups = settings_of(size.drafters, size.places).groups
    return [DrafterId(group.name, index) for group in groups for index in range(group.count)]


def _without_leases(caller: Caller) -> Caller:
    return Caller(caller.name, caller.settings, {})


def _unchanged(callers: list[Caller], known: NewsMark | None) -> Iterable[bytes]:
    return (caller.unchanged(_LATER + beats, known) for beats, caller in _rounds(callers))


def _rounds(callers: list[Caller]) -> Iterable[tuple[int, Caller]]:
    for beats in count(2):
        for caller in callers:
            yield beats, caller


def _lost(drafters: list[DrafterId]) -> Iterable[bytes]:
    return (pickle.dumps((drafter,), protocol=5) for drafter in cycle(drafters))


async def _started(what: str, fleet: Fleet, expected: int, callers: list[Caller]) -> Start:
    """Send a heartbeat of every caller, then poll the fleet until all drafters are ready."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for caller in callers:
        pickle.dumps(await fleet.beat(pickle.loads(caller.everything())), protocol=5)  # noqa: S301 (our own)
    while True:
        sums = await fleet.sums()
        if sum(count for (_, state), count in sums.drafters.items() if state is DrafterState.READY) == expected:
            break
        await asyncio.sleep(_LOOK_S)
    found = Start(what, time.process_time() - began_cpu_s, time.perf_counter() - began_s)
    held, leased = sum(len(caller.held) for caller in callers), sum(sums.leases.values())
    if leased != held:
        raise RuntimeError(f"needs {held} leases known again, found {leased}")
    return found


async def _cost(what: str, call: Callable[..., Awaitable[Any]], messages: Iterable[bytes], budget_s: float) -> Cost:
    """Time calls; messages are made before the clock runs, as that is the sender's work."""
    calls, spent_s, began_s = 0, 0.0, time.perf_counter()
    sent = answered = 0
    for message in messages:
        began_cpu_s = time.process_time()
        arguments = pickle.loads(message)  # noqa: S301 (our own)
        answer = await (call(*arguments) if isinstance(arguments, tuple) else call(arguments))
        written = pickle.dumps(answer, protocol=5)
        spent_s += time.process_time() - began_cpu_s
        calls, sent, answered = calls + 1, len(message), len(written)
        if time.perf_counter() - began_s > budget_s:
            break
    return Cost(what, calls, spent_s, sent, answered)


async def _lease_costs(fleet: Fleet, caller: Caller, budget_s: float) -> list[Cost]:
    """Cost of responses of one coordinator that come and go one at a time, so that the fleet stays as full as it is."""
    leases = releases = 0
    lease_s = release_s = 0.0
    sent = answered = 0
    began_s = time.perf_counter()
    for number in count():
        name = f"new-{number:032x}"
        message = pickle.dumps((name, frozenset[DrafterId](), caller.name, None), protocol=5)
        began_cpu_s = time.process_time()
        lease = await fleet.lease(*pickle.loads(message))  # noqa: S301 (our own)
        written = pickle.dumps(lease, protocol=5)
        lease_s += time.process_time() - began_cpu_s
        leases, sent, answered = leases + 1, len(message), len(written)
        assert lease is not None, "there is room"
        message = pickle.dumps((name,), protocol=5)
        began_cpu_s = time.process_time()
        await fleet.release(*pickle.loads(message))  # noqa: S301 (our own)
        release_s += time.process_time() - began_cpu_s
        releases += 1
        if time.perf_counter() - began_s > budget_s:
            break
    return [Cost("lease", leases, lease_s, sent, answered), Cost("release", releases, release_s, len(message), 4)]
