"""Responses that come and go at all coordinators, on a virtual clock: the fleet's calls, and their cost."""

import pickle
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from actors.fleet.fleet import Fleet
from actors.heartbeats import FleetNews
from lab.bench.fleet.world import Caller
from outrider.contracts.requests import GenerationId
from serve_app.coordination.drafting.drafter_slots import DrafterSlots

_BEAT_S = 1.0  # until the fleet changes it
_RETRY_S = 1.0  # of a response that found no place

Happening = tuple[float, int, str, int, GenerationId]  # time, order, kind, coordinator, generation


@dataclass(frozen=True, slots=True)
class Flow:
    """Calls per virtual second: ``calls`` by kind, and their CPU time. ``unplaced``: responses without a drafter."""

    calls: dict[str, float]
    cpu_share: float
    beat_bytes: int  # of one heartbeat and its answer, mean
    unplaced: float  # share of all responses, at the end

    @property
    def calls_per_s(self) -> float:
        return sum(self.calls.values())


async def traffic(
    fleet: Fleet, callers: Sequence[Caller], response_s: float, warmup_s: float, measured_s: float, seed: int = 0
) -> Flow:
    """Run responses of ``response_s`` on average, exponentially distributed; a new one replaces each at once."""
    run = _Run(fleet, callers, response_s, warmup_s, seed)
    await run.until(warmup_s + measured_s)
    return run.flow(measured_s)


class _Run:
    def __init__(self, fleet: Fleet, callers: Sequence[Caller], response_s: float, warmup_s: float, seed: int) -> None:
        self._fleet, self._callers, self._response_s, self._warmup_s = fleet, callers, response_s, warmup_s
        self._random = random.Random(seed)  # noqa: S311 (nothing to guess)
        self._places = [DrafterSlots(caller.name) for caller in callers]
        self._beat_s = [_BEAT_S] * len(callers)
        self._began = self._order = 0
        self._unplaced = set[GenerationId]()
        self._calls, self._cpu_s, self._beat_bytes = Counter[str](), 0.0, 0
        self._agenda = list[Happening]()
        for number, (caller, places) in enumerate(zip(callers, self._places, strict=True)):
            for generation, drafter in caller.held.items():
                assert drafter is not None, "callers know their drafters"
                places.answered(generation, None, (drafter, None))
                self._at(self._drawn_duration_s(), "ends", number, generation)
            self._at(self._random.random() * _BEAT_S, "beats", number, "")
        heapify(self._agenda)

    async def until(self, end_s: float) -> None:
        """Process all events before ``end_s``."""
        while self._agenda and self._agenda[0][0] < end_s:
            at_s, _, what, number, generation = heappop(self._agenda)
            if what == "beats":
                await self._beat(number, at_s)
            elif what == "ends":
                await self._end(number, generation, at_s)
            else:
                await self._ask(number, generation, at_s)

    def flow(self, measured_s: float) -> Flow:
        """Calls after the warm-up."""
        streams = sum(len(caller.held) for caller in self._callers)
        return Flow(
            {what: calls / measured_s for what, calls in self._calls.items()},
            self._cpu_s / measured_s,
            self._beat_bytes // max(1, self._calls["heartbeat"]),
            len(self._unplaced) / streams,
        )

    async def _beat(self, number: int, at_s: float) -> None:
        caller, places = self._callers[number], self._places[number]
        heartbeat = places.heartbeat(caller.report(1 + int(at_s)), caller.settings)
        news: FleetNews = await self._call("heartbeat", at_s, self._fleet.beat, heartbeat)
        places.heard(news)
        self._at(at_s + news.beat_s, "beats", number, "")

    async def _end(self, number: int, generation: GenerationId, at_s: float) -> None:
        if self._places[number].release(generation):
            await self._call("release", at_s, self._fleet.release, generation)
        self._began += 1
        name = f"{self._began:036x}"
        self._unplaced.add(name)
        self._at(at_s + self._drawn_duration_s(), "ends", number, name)
        self._unplaced.discard(generation)
        await self._ask(number, name, at_s)

    async def _ask(self, number: int, generation: GenerationId, at_s: float) -> None:
        if generation not in self._unplaced:
            return
        places, caller = self._places[number], self._callers[number]
        place = places.take(generation, (), None)
        if place is None and places.begin_lease(generation, None):
            place = await self._call("lease", at_s, self._fleet.lease, generation, frozenset(), caller.name, None)
            places.answered(generation, None, place)
        if place is None:
            self._at(at_s + _RETRY_S, "asks", number, generation)
        else:
            self._unplaced.discard(generation)

    async def _call(self, what: str, at_s: float, call: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        message = pickle.dumps(arguments, protocol=5)
        began_cpu_s = time.process_time()
        answer = await call(*pickle.loads(message))  # noqa: S301 (our own)
        written = pickle.dumps(answer, protocol=5)
        if at_s >= self._warmup_s:
            self._cpu_s += time.process_time() - began_cpu_s
            self._calls[what] += 1
            if what == "heartbeat":
                self._beat_bytes += len(message) + len(written)
        return answer

    def _drawn_duration_s(self) -> float:
        return self._random.expovariate(1.0 / self._response_s)

    def _at(self, at_s: float, what: str, number: int, generation: GenerationId) -> None:
        self._order += 1
        heappush(self._agenda, (at_s, self._order, what, number, generation))
