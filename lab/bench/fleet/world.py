"""The fleet's counterparts as plain objects: drafters that are always healthy, coordinators that hold leases."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actors.fleet.drafter_actors import DrafterActors
from actors.heartbeats import FleetNews, Heartbeat, NewsMark, packed, state_of
from actors.messages import (
    CoordinatorReport,
    DrafterHoldings,
    DrafterId,
    FleetSettings,
    LinkReport,
    ModelCard,
    SloRounds,
)
from outrider.config.drafters import DrafterGroupConfig
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage

GROUPS = 4
_TARGET, _TOKENS = "target", "tokens"
_CARD = ModelCard("virtual", "model", _TOKENS, 49_152, (), 8192)
_SESSION = 1
_REPLICA = "outrider#Coordinator#{:08d}"


class Method:
    """A method of an actor handle."""

    def __init__(self, answer: Callable[..., Awaitable[Any]]) -> None:
        """Calls return what ``answer`` does."""
        self._answer = answer

    def at_most(self, _most_bytes: int) -> "Method":
        """Return itself: nothing is received over a wire."""
        return self

    def remote(self, *arguments: object) -> "asyncio.Task[Any]":
        return asyncio.ensure_future(self._answer(*arguments))


class VirtualDrafter:
    """Handle of a drafter that loads at once, always drafts, and holds the generations it is given."""

    def __init__(self, name: str, asked: Callable[[], None] = lambda: None) -> None:
        """Start empty; ``asked`` is called at each poll of what it holds."""
        self.name, self._asked = name, asked
        self.generations: set[GenerationId] = set()
        self._sent = 0  # segments
        self.card, self.prove = Method(self._card), Method(self._prove)
        self.held, self.forget = Method(self._held), Method(self._forget)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name; Ray's own handles cost more."""
        return VirtualDrafter, (self.name,)

    async def _card(self) -> ModelCard:
        return _CARD

    async def _prove(self) -> None:
        pass

    async def _held(self) -> DrafterHoldings:
        self._asked()
        self._sent += 1
        return DrafterHoldings(tuple(self.generations), self._sent)

    async def _forget(self, generations: Sequence[GenerationId]) -> None:
        self.generations.difference_update(generations)


class VirtualActors(DrafterActors):
    """Drafter actors that outlive a fleet, as the real ones do."""

    def __init__(self) -> None:
        self.processes: dict[DrafterId, VirtualDrafter] = {}
        self.asked = 0  # polls of what drafters hold

    async def find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> Any:  # noqa: ARG002 (interface)
        """Find the running drafter, or create one."""
        found = self.processes.get(drafter)
        if found is None:
            found = self.processes[drafter] = VirtualDrafter(drafter.actor_name, self._count)
        return found

    async def restart(self, handle: Any) -> None:
        """Clear its memory."""
        handle.generations.clear()

    async def stop(self, drafter: DrafterId) -> None:
        self.processes.pop(drafter, None)

    async def running(self) -> frozenset[DrafterId]:
        return frozenset(self.processes)

    def _count(self) -> None:
        self.asked += 1


def settings_of(drafters: int, places: int) -> FleetSettings:
    """Settings of drafters in several groups, each with places for ``places`` generations."""
    groups = tuple(
        DrafterGroupConfig(name=f"group{number}", count=count, max_generations=places)
        for number in range(GROUPS)
        if (count := (drafters + number) // GROUPS)
    )
    return FleetSettings(groups, _TARGET, _TOKENS)


@dataclass(slots=True)
class Caller:
    """A coordinator, as the fleet sees it."""

    name: str
    settings: FleetSettings
    held: dict[GenerationId, DrafterId | None]

    def first(self) -> Heartbeat:
        """Its heartbeat to a fleet that it does not know yet."""
        report = self.report(1)
        return Heartbeat(state_of(report), packed(report), _SESSION, 1, self.held, settings=self.settings)

    def everything(self, beats: int = 1) -> bytes:
        """The pickled heartbeat with all its state; counters are those after ``beats`` beats."""
        first, report = self.first(), self.report(beats)
        return pickle.dumps(replace(first, report=packed(report), number=beats), protocol=5)

    def quiet(self, beats: int, known: NewsMark | None) -> Heartbeat:
        """Its heartbeat while its streams continue; ``known``: what it knows of the others."""
        report = self.report(beats)
        return Heartbeat(state_of(report), packed(report), _SESSION, beats, {}, since=1, known=known)

    def unchanged(self, beats: int, known: NewsMark | None) -> bytes:
        """The same, pickled."""
        return pickle.dumps(self.quiet(beats, known), protocol=5)

    def report(self, beats: int) -> CoordinatorReport:
        """Its report; counters are those after ``beats`` beats."""
        return _report(self, beats)


def callers_of(settings: FleetSettings, drafters: int, streams: int, each: int) -> list[Caller]:
    """Coordinators of ``streams`` streams, ``each`` per coordinator, spread evenly over the drafters."""
    ids = [DrafterId(group.name, index) for group in settings.groups for index in range(group.count)]
    assert len(ids) == drafters, "groups hold all of them"
    made = []
    for number in range(-(-streams // each)):
        held = {f"{number:08x}-{turn:027x}": ids[turn % drafters] for turn in range(number * each, (number + 1) * each)}
        made.append(Caller(_REPLICA.format(number), settings, dict[GenerationId, DrafterId | None](held)))
    return made


def _report(caller: Caller, beats: int) -> CoordinatorReport:
    links: Mapping[str, LinkReport] = {
        drafter.actor_name: LinkReport(0.04, 2e7, 5e7) for drafter in caller.held.values() if drafter is not None
    }
    rounds = 500 * beats
    return CoordinatorReport(
        id=caller.name,
        verifier="ready",
        uptime_s=float(beats),
        generations=len(caller.held),
        rounds=rounds,
        speculative_rounds=rounds,
        drafted_tokens=4 * rounds,
        accepted_tokens=3 * rounds,
        committed_tokens=4 * rounds,
        verifier_idle_s=0.1 * beats,
        kv=KvUsage(16, 4096, 2048, 1024, len(caller.held), 0),
        phase_seconds=dict.fromkeys(("downlink", "draft", "uplink", "queue", "verify"), 0.1 * beats),
        slo=dict.fromkeys(("best_effort", "reading", "fast"), SloRounds(rounds)),
        target="model/torch/bfloat16/noise 1",
        links=links,
    )


async def all_known(beat: Callable[[Heartbeat], Awaitable[FleetNews]], caller: Caller) -> NewsMark | None:
    """Page through the fleet's news until all coordinators are known; return the mark."""
    heartbeat, known = caller.first(), None
    while (news := await beat(replace(heartbeat, known=known))).mark != known:
        known = news.mark
    return known
