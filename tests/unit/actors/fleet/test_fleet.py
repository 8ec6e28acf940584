"""The fleet over drafters in this process: who is started, refused, replaced, and what is forgotten."""

import asyncio
import pickle
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayError

from actors.fleet import handshake
from actors.fleet.drafter_actors import DrafterActors, DrafterPhase
from actors.fleet.fleet import Fleet
from actors.fleet.timeouts import FleetTimeouts
from actors.heartbeats import CoordinatorState, FleetNews, Heartbeat, packed, state_of
from actors.messages import CoordinatorReport, DrafterId, DrafterState, FleetSettings, FleetStatus, FleetSums
from outrider.config.drafters import DrafterGroupConfig
from outrider.contracts.errors import DrafterBrokenError
from outrider.contracts.requests import GenerationId
from outrider.versions import VERSIONS, VersionRange
from outrider.wire.replies import DrafterCard, DrafterHoldings, SentSegments, read_reply
from serve_app.coordination.drafting.drafter_slots import DrafterSlots
from tests.unit.virtual_clock import on_loop

CARD = DrafterCard("tiny", "model", "tokens", 64, (), 256)
PACE = FleetTimeouts(probe_deadline_s=0.05, restart_poll_s=0.001, retry_s=0.01, owner_ttl_s=0.2, sweep_s=0.01)
FIRST, SECOND, THIRD = (DrafterId("edge", i) for i in range(3))


@dataclass
class Call:
    """A method as an actor's handle has it."""

    answer: Callable[..., Awaitable[Any]]
    most_bytes: int = 2**16

    def at_most(self, most_bytes: int) -> "Call":
        """The same, with another bound."""
        return Call(self.answer, most_bytes)

    def remote(self, *arguments: object) -> "asyncio.Task[Any]":
        """Begin the call."""
        return asyncio.ensure_future(self._read(*arguments))

    async def _read(self, *arguments: object) -> Any:
        """Bytes are read as they are of an actor."""
        answer = await self.answer(*arguments)
        return read_reply(answer, self.most_bytes) if isinstance(answer, bytes) else answer


class MemoryDrafter:
    """A drafter's process."""

    def __init__(self, card: object) -> None:
        self.card_shown = card
        self.generations: set[GenerationId] = set()
        self.trouble: Exception | None = None
        self.hangs = False
        self.phase = DrafterPhase.RUNNING
        self.fails: Exception | None = None  # at drafting
        self.engine_hangs = False
        self.proofs = 0
        self.sent: tuple[Any, Any] = (0, 0)  # segments, and those sent again
        self.prove = Call(self._prove)
        self.raw: dict[str, bytes] = {}  # replies, by method, in place of its own
        self.forgets: list[list[GenerationId]] = []
        self.card, self.held, self.forget = Call(self._card), Call(self._held), Call(self._forget)

    async def _card(self) -> object:
        await self._answering()
        return self.raw.get("card", self.card_shown)

    async def _held(self) -> DrafterHoldings | bytes:
        await self._answering()
        if "held" in self.raw:
            return self.raw["held"]
        return DrafterHoldings(tuple(self.generations), *self.sent)

    async def _prove(self) -> None:
        await self._answering()
        self.proofs += 1
        if self.engine_hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails

    async def _forget(self, generations: list[GenerationId]) -> None:
        self.forgets.append(generations)
        self.generations.difference_update(generations)

    async def _answering(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        if self.hangs:
            await asyncio.Event().wait()


@dataclass
class MemoryActors(DrafterActors):
    """Starts drafters that say they are ``card``."""

    card: object = CARD
    processes: dict[DrafterId, MemoryDrafter] = field(default_factory=dict)
    head: asyncio.Event = field(default_factory=asyncio.Event)
    deaf: int = 0  # calls to stop one that fail from now on
    stopped: list[DrafterId] = field(default_factory=list)
    restarted: int = 0

    async def find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> MemoryDrafter:
        """The one that runs, or a new one."""
        assert (group.name, target) == (drafter.group, "target")
        return self.processes.setdefault(drafter, MemoryDrafter(self.card))

    async def restart(self, handle: MemoryDrafter) -> None:
        """It comes up with nothing in memory."""
        self.restarted += 1
        handle.__init__(handle.card_shown)  # type: ignore[misc]

    async def phase(self, handle: MemoryDrafter) -> DrafterPhase:
        """As it is set."""
        return handle.phase

    async def stop(self, drafter: DrafterId) -> None:
        """It is gone, unless the head is away."""
        if self.deaf:
            self.deaf -= 1
            raise RayError("the head is away")
        self.stopped.append(drafter)
        self.processes.pop(drafter, None)

    async def running(self) -> frozenset[DrafterId]:
        """All there are, while the head is not away."""
        await self.head.wait()
        return frozenset(self.processes)


def report(name: str) -> CoordinatorReport:
    return CoordinatorReport(name, "ready", 1.0)


def beat(
    owner: str = "c",
    held: dict[GenerationId, DrafterId | None] | None = None,
    *,
    count: int = 2,
    models: dict[str, str] | None = None,
) -> Heartbeat:
    group = DrafterGroupConfig(name="edge", count=count, max_generations=4)
    settings = FleetSettings((group,), "target", "tokens", models=models or {})
    return Heartbeat(state_of(report(owner)), packed(report(owner)), 1, 1, held or {}, settings=settings)


async def told(fleet: Fleet) -> FleetStatus:
    """How it stands once a coordinator has beaten."""
    await fleet.beat(beat())
    return await fleet.status()


async def ready(fleet: Fleet, drafters: int, heartbeat: Heartbeat) -> FleetStatus:
    """Beat until so many are ready."""
    while True:
        await fleet.beat(heartbeat)
        status = await fleet.status()
        if sum(drafter.state is DrafterState.READY for drafter in status.drafters) == drafters:
            return status
        await asyncio.sleep(0.001)


def times_taken_out(actors: MemoryActors) -> int:
    return actors.restarted + len(actors.stopped)


def bounded(test: Coroutine[Any, Any, None]) -> None:
    """Run it on a virtual loop of its own."""
    on_loop(lambda: test)()


async def broken(fleet: Fleet, drafter: DrafterId) -> None:
    """Two generations say that it is, one after the other."""
    for generation in "gh":
        while (drafter.actor_name, DrafterState.READY) not in await states(fleet):  # noqa: ASYNC110 (as below)
            await asyncio.sleep(0.001)
        await fleet.report_broken(drafter, "needs round 3, found 4", generation)


async def states(fleet: Fleet) -> list[tuple[str, DrafterState]]:
    return [(one.name, one.state) for one in (await fleet.status()).drafters]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (product state has no event)
        await asyncio.sleep(0.001)


def test_a_lease_tells_the_versions_of_messages_that_the_drafter_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator may be of another release than the fleet, and know others."""
    monkeypatch.setattr(handshake, "VERSIONS", replace(VERSIONS, messages=VersionRange(1, 3)))

    async def run() -> None:
        actors = MemoryActors(card=replace(CARD, versions=replace(VERSIONS, messages=VersionRange(1, 2))))
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        leased = await fleet.lease("g")
        assert leased is not None
        assert leased[1].messages == (1, 2)

    bounded(run())


def test_it_knows_nothing_until_a_coordinator_beats() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        assert (await fleet.lease("g"), (await fleet.status()).drafters, actors.processes) == (None, (), {})
        status = await ready(fleet, 2, beat())
        assert [drafter.name for drafter in status.drafters] == ["drafter-edge-0", "drafter-edge-1"]
        assert await fleet.lease("g", owner="c") == (FIRST, actors.processes[FIRST])

    bounded(run())


def test_a_redeployment_with_more_devices_leaves_the_others_running() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        await ready(fleet, 3, beat("d", count=3))
        assert actors.stopped == []
        await fleet.beat(beat(count=2))
        assert len((await fleet.status()).drafters) == 3, "the newest coordinator's settings hold"
        await ready(fleet, 1, beat("e", count=1))
        await until(lambda: set(actors.stopped) == {SECOND, THIRD})

    bounded(run())


def test_a_restarted_fleet_finds_drafters_and_leases_again() -> None:
    actors = MemoryActors()

    async def first_fleet() -> None:
        await ready(Fleet(actors, PACE), 2, beat())

    async def run() -> None:
        for process in actors.processes.values():
            process.generations.add("g")
        fleet = Fleet(actors, PACE)
        heartbeat = beat(held={"g": SECOND})
        status = await ready(fleet, 2, heartbeat)
        assert [drafter.generations for drafter in status.drafters] == [0, 1]
        assert await fleet.lease("g", owner="c") == (SECOND, actors.processes[SECOND])
        while actors.processes[FIRST].generations:
            await fleet.beat(heartbeat)
            await asyncio.sleep(0.001)
        assert actors.processes[SECOND].generations == {"g"}, "what is leased stays"
        assert actors.stopped == []

    bounded(first_fleet())
    bounded(run())


def test_a_silent_coordinators_leases_end_and_its_generations_are_forgotten() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat("dead"))
        await fleet.lease("g", owner="dead")
        actors.processes[FIRST].generations.add("g")
        while actors.processes[FIRST].generations:
            await fleet.beat(beat("alive"))
            await asyncio.sleep(0.001)
        status = await fleet.status()
        assert [drafter.generations for drafter in status.drafters] == [0, 0]
        assert [coordinator.id for coordinator in status.coordinators] == ["alive"]

    bounded(run())


@pytest.mark.parametrize("trouble", ["died", "hung"])
def test_one_that_fails_while_idle_is_found_and_comes_back(trouble: str) -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        process = actors.processes[FIRST]
        if trouble == "died":
            process.trouble = ActorDiedError()
        else:
            process.hangs = True
        await until(lambda: actors.processes.get(FIRST) is not process or actors.restarted == 1)
        await ready(fleet, 2, beat())
        assert await fleet.lease("g", exclude=[SECOND]) == (FIRST, actors.processes[FIRST])

    bounded(run())


def test_a_stranger_is_refused_and_a_new_model_for_the_whole_group_is_not() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        actors.card = replace(CARD, model_hash="newer")
        await broken(fleet, FIRST)
        while "as its group" not in str((await told(fleet)).drafters[0].reason):  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.001)
        await broken(fleet, SECOND)
        await ready(fleet, 2, beat())
        assert {process.card_shown for process in actors.processes.values()} == {actors.card}

    bounded(run())


def test_a_drafter_that_is_removed_in_the_middle_of_a_sweep_ends_no_sweeping() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        actors.processes[SECOND].hangs = True
        await asyncio.sleep(2 * PACE.sweep_s)  # a sweep waits for its answer now
        await fleet.beat(beat("d", count=1))
        actors.processes[FIRST].generations.add("orphan")
        while actors.processes[FIRST].generations:
            await fleet.beat(beat("d", count=1))
            await asyncio.sleep(0.001)

    bounded(run())


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_whatever_goes_wrong_while_a_drafter_is_replaced_it_is_tried_again(failures: int) -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        actors.deaf = failures
        await broken(fleet, FIRST)
        (refused, _) = (await told(fleet)).drafters
        while refused.state is not DrafterState.REFUSED:
            (refused, _) = (await told(fleet)).drafters
            await asyncio.sleep(0.001)
        await ready(fleet, 2, beat())
        assert (actors.deaf, actors.stopped) == (0, [FIRST])

    bounded(run())


def test_what_was_removed_while_no_fleet_ran_is_stopped_by_the_next_one() -> None:
    actors = MemoryActors()

    async def first_fleet() -> None:
        await ready(Fleet(actors, PACE), 3, beat(count=3))

    async def run() -> None:
        kept = actors.processes[FIRST]
        fleet = Fleet(actors, PACE)
        await asyncio.sleep(10 * PACE.sweep_s)
        assert actors.stopped == [], "it does not know yet what is wanted"
        await ready(fleet, 1, beat("d", count=1))
        await asyncio.sleep(10 * PACE.sweep_s)
        actors.deaf = 1
        actors.head.set()
        await until(lambda: set(actors.processes) == {FIRST})
        assert actors.processes[FIRST] is kept
        assert set(actors.stopped) == {SECOND, THIRD}

    bounded(first_fleet())
    bounded(run())


def test_one_that_is_to_run_otherwise_is_started_anew() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        before = dict(actors.processes)
        changed = beat("d")
        assert changed.settings is not None
        (group,) = changed.settings.groups
        settings = replace(changed.settings, groups=(replace(group, max_generations=9),))
        status = await ready(fleet, 2, replace(changed, settings=settings))
        assert [drafter.capacity for drafter in status.drafters] == [9, 9]
        assert actors.stopped == [FIRST, SECOND]
        assert not set(before.values()) & set(actors.processes.values())

    bounded(run())


def test_its_gauges_are_told_how_it_stands_however_many_coordinators_beat() -> None:
    async def run() -> None:
        told = list[FleetSums]()
        fleet = Fleet(MemoryActors(), replace(PACE, noted_s=1.0), told.append)
        for number in range(31):
            await fleet.beat(beat(f"c{number % 3}"))
            await asyncio.sleep(0.1)
        assert len(told) in (3, 4)
        drafters = {key: count for key, count in told[-1].drafters.items() if count}
        assert (drafters, told[-1].leases) == ({("edge", DrafterState.READY): 2}, {})

    bounded(run())


def test_what_devices_say_to_have_sent_is_told_with_the_gauges_and_nothing_else_comes_of_it() -> None:
    async def run() -> None:
        noted = list[FleetSums]()
        fleet = Fleet(actors := MemoryActors(), replace(PACE, noted_s=0.1, owner_ttl_s=1e9), noted.append)
        await ready(fleet, 2, beat())
        await asyncio.sleep(3 * PACE.sweep_s)
        actors.processes[FIRST].sent, actors.processes[SECOND].sent = (30, 4), ("many", 2**200)
        await asyncio.sleep(3 * PACE.sweep_s)
        assert fleet.sums().sent == {"edge": SentSegments(30, 4)}
        await asyncio.sleep(0.2)
        await ready(fleet, 2, beat())
        assert noted[-1].sent == {"edge": SentSegments(30, 4)}
        assert (actors.stopped, actors.restarted) == ([], 0)

    bounded(run())


def test_one_generations_word_does_not_break_a_drafter_that_proves_itself() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, PACE)
        await ready(fleet, 2, beat())
        for _ in range(5):
            await fleet.report_broken(FIRST, "sends nonsense", "g")
            await ready(fleet, 2, beat())
        assert (actors.stopped, actors.restarted, actors.processes[FIRST].proofs) == ([], 0, 6)
        await fleet.report_broken(FIRST, "sends nonsense", "h")
        await until(lambda: actors.stopped == [FIRST])
        await ready(fleet, 2, beat())

    bounded(run())


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
def test_one_whose_engine_does_not_draft_is_not_leased_whatever_it_answers(trouble: str) -> None:
    """Its event loop answers: it is a suspect while it is asked to prove itself, and taken out longer each time."""

    async def run() -> None:
        actors, now_s = MemoryActors(), asyncio.get_running_loop().time
        fleet = Fleet(actors, replace(PACE, proof_deadline_s=0.1))
        await ready(fleet, 2, beat())
        taken_out_at_s = []
        for _ in range(4):
            process = actors.processes[FIRST]
            process.engine_hangs = trouble == "hangs"
            process.fails = DrafterBrokenError("nan") if trouble == "fails" else None
            before = times_taken_out(actors)
            await fleet.report_lost(FIRST)
            assert await fleet.lease("g", exclude=[SECOND]) is None
            while times_taken_out(actors) == before:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.001)
            began_s = now_s()
            await ready(fleet, 2, beat())
            taken_out_at_s.append(now_s() - began_s)
        assert taken_out_at_s[-1] > 2.0 * taken_out_at_s[0], taken_out_at_s
        assert await fleet.lease("g", exclude=[SECOND]) == (FIRST, actors.processes[FIRST])

    bounded(run())


async def beaten(fleet: Fleet, places: DrafterSlots) -> FleetNews:
    """One coordinator beats, with its places."""
    settings = beat().settings
    assert settings is not None
    news = await fleet.beat(places.heartbeat(report(places.owner), settings))
    places.heard(news)
    return news


def test_of_coordinators_only_news_are_told() -> None:
    async def run() -> None:
        fleet = Fleet(MemoryActors(), PACE)
        first = await fleet.beat(beat("a"))
        assert (first.changed, first.anew) == ((CoordinatorState("a", "ready", ""),), True)
        news = await fleet.beat(replace(beat("b"), known=first.mark))
        assert ([one.id for one in news.changed], news.anew) == (["b"], False)
        again = await fleet.beat(replace(beat("a"), known=news.mark))
        assert (again.changed, again.gone, again.mark) == ((), (), news.mark)
        restarting = state_of(replace(report("a"), verifier="restarting"))
        await fleet.beat(replace(beat("a"), state=restarting))
        changed = await fleet.beat(replace(beat("b"), known=again.mark))
        assert changed.changed == (restarting,)
        await asyncio.sleep(PACE.owner_ttl_s)
        alone = await fleet.beat(replace(beat("b"), known=changed.mark))
        assert (alone.gone, alone.anew) == (("a",), False), "one that is silent is gone"
        other = await Fleet(MemoryActors(), PACE).beat(replace(beat("b"), known=alone.mark))
        assert other.anew, "after a restart nobody knows its news"

    bounded(run())


def test_a_restarted_fleet_has_everything_told_before_it_takes_changes_or_gives_places() -> None:
    async def run() -> None:
        actors, timeouts = MemoryActors(), replace(PACE, spares_from=1)
        places, fleet = DrafterSlots("c"), Fleet(actors, timeouts)
        for name in "gh":
            places.take(name, (), None)
        await beaten(fleet, places)
        await ready(fleet, 2, beat("other"))
        await beaten(fleet, places)
        await beaten(fleet, places)
        assert places.at_hand == 2
        fleet = Fleet(actors, timeouts)
        await ready(fleet, 2, beat("other"))
        asked = await beaten(fleet, places)
        assert (asked.tell_all, asked.places, asked.withdrawn) == (True, (), ())
        assert asked.beat_s < PACE.beat_s, "soon"
        assert (await beaten(fleet, places)).tell_all is False
        assert dict(fleet.sums().leases) == {"edge": 2}
        assert places.at_hand == 2

    bounded(run())


def test_a_status_is_read_by_who_asked_for_it() -> None:
    async def run() -> None:
        fleet = Fleet(MemoryActors(), PACE)
        here = await ready(fleet, 2, beat())
        there = pickle.loads(pickle.dumps(fleet.packed_status()))
        assert isinstance(there, FleetStatus)
        assert there.coordinators == here.coordinators == (report("c"),)
        assert [one.name for one in there.drafters] == [one.name for one in here.drafters]

    bounded(run())


def test_beats_are_slower_the_more_coordinators_there_are() -> None:
    async def run() -> None:
        fleet = Fleet(MemoryActors(), replace(PACE, beats_per_s=10))
        waits = [(await fleet.beat(beat(f"c{number}"))).beat_s for number in range(50)]
        assert (waits[:10], waits[19], waits[-1]) == ([1.0] * 10, 2.0, 3.0)

    bounded(run())


def test_few_coordinators_ask_for_each_lease_and_many_keep_places_at_hand() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, replace(PACE, spares_from=3))
        owners = [DrafterSlots(f"c{number}") for number in range(3)]
        await ready(fleet, 2, beat("c0"))
        places = owners[0]
        assert places.take("g", (), None) is None
        assert places.begin_lease("g", None)
        places.answered("g", None, await fleet.lease("g", owner="c0"))
        assert (await beaten(fleet, places)).most_spare is None
        assert (places.release("g"), places.at_hand) == (True, 0), "the fleet is to be told"
        await fleet.release("g")
        for owner in owners[1:]:
            await beaten(fleet, owner)
        assert (await beaten(fleet, places)).most_spare == 1, "8 places, half of them for three"
        await beaten(fleet, places)
        assert places.at_hand == 1
        assert sum(one.generations for one in (await fleet.status()).drafters) == 1
        place = places.take("h", (), None)
        assert (place, places.in_use, places.at_hand) == ((FIRST, actors.processes[FIRST]), 1, 0)
        assert (places.release("h"), places.at_hand) == (False, 1), "it stays where it is"
        await beaten(fleet, places)
        assert fleet._table.unleased(FIRST, ["h"]) == frozenset(), "by its last name"  # noqa: SLF001

    bounded(run())


def test_places_at_hand_of_a_drafter_that_fails_are_withdrawn() -> None:
    async def run() -> None:
        actors = MemoryActors()
        fleet = Fleet(actors, replace(PACE, spares_from=1))
        await ready(fleet, 2, beat("c0"))
        places = DrafterSlots("c0")
        for name in "gh":
            places.take(name, (), None)
        await beaten(fleet, places)
        await beaten(fleet, places)
        assert places.at_hand == 2
        actors.processes[FIRST].hangs = True
        await fleet.report_lost(FIRST)
        await beaten(fleet, places)
        assert places.take("i", [SECOND], None) is None
        assert places.take("j", (), frozenset({"another"})) is None
        assert (places.take("k", (), None) or ("none",))[0] == SECOND

    bounded(run())


def test_drafters_are_asked_what_they_hold_so_many_a_second() -> None:
    async def run() -> None:
        actors, asked_at_s = MemoryActors(), list[float]()
        fleet = Fleet(actors, replace(PACE, asked_per_s=10, owner_ttl_s=1e9))
        now_s = asyncio.get_running_loop().time
        await ready(fleet, 30, beat(count=30))
        for process in actors.processes.values():
            process.held = Call(_noting(process.held.answer, lambda: asked_at_s.append(now_s())))
            process.generations.add("orphan")
        await until(lambda: not any(process.generations for process in actors.processes.values()))
        within_s = Counter(int(at_s - asked_at_s[0]) for at_s in asked_at_s)
        assert max(within_s.values()) <= 20, "one round's last and the next one's first"
        assert len(asked_at_s) >= 60, "everybody twice"

    bounded(run())


def _noting(answer: Callable[..., Awaitable[Any]], note: Callable[[], object]) -> Callable[..., Awaitable[Any]]:
    async def noted() -> Any:
        note()
        return await answer()

    return noted
