"""The fleet as an actor on its own Ray cluster: cost of a heartbeat with Ray's part of it."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from actors.fleet.fleet import Fleet
from actors.fleet.timeouts import FleetTimeouts
from lab.bench.fleet.measure import Size
from lab.bench.fleet.world import VirtualActors, all_known, callers_of, settings_of

_LATER = 10**6  # heartbeat number above all others


@dataclass(frozen=True, slots=True)
class Paced:
    """Calls of one kind at a steady rate, and their CPU time in the fleet's process."""

    what: str
    calls_per_s: float
    cpu_s: float  # per call

    @property
    def cpu_share(self) -> float:
        return self.calls_per_s * self.cpu_s


class MeasuredFleet(Fleet):
    """A fleet over drafters that are plain objects in its process."""

    def __init__(self) -> None:
        super().__init__(VirtualActors(), FleetTimeouts(owner_ttl_s=1e9))

    async def nothing(self) -> None:
        """Do nothing: measures Ray's part of a call."""

    async def cpu_s(self) -> float:
        """CPU time of this process since its start."""
        times = os.times()
        return times.user + times.system


def through_ray(size: Size, per_s: float, calls: int) -> list[Paced]:
    """Start a cluster, measure, and stop it. A single driver sends all calls: its rate may fall short of ``per_s``."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        return asyncio.run(_measured(size, per_s, calls))
    finally:
        ray.shutdown()


async def _measured(size: Size, per_s: float, calls: int) -> list[Paced]:
    kind: Any = ray.remote(MeasuredFleet).options(num_cpus=0)
    settings = settings_of(size.drafters, size.places)
    fleet, callers = kind.remote(), callers_of(settings, size.drafters, size.streams, size.each)
    first = [caller.first() for caller in callers]
    told = await _paced("everything, to a new fleet", fleet, lambda i: fleet.beat.remote(first[i]), per_s, len(first))
    nothing = await _paced("nothing", fleet, lambda _: fleet.nothing.remote(), per_s, calls)
    known = await all_known(fleet.beat.remote, callers[0])
    quiet = [caller.quiet(_LATER, known) for caller in callers]
    beats = await _paced("heartbeat", fleet, lambda i: fleet.beat.remote(quiet[i % len(quiet)]), per_s, calls)
    return [told, nothing, beats]


async def _paced(what: str, fleet: Any, call: Callable[[int], Any], per_s: float, calls: int) -> Paced:
    before_s, began_s = await fleet.cpu_s.remote(), time.perf_counter()
    answers = []
    for number in range(calls):
        answers.append(call(number))
        await asyncio.sleep(max(0.0, began_s + (number + 1) / per_s - time.perf_counter()))
    await asyncio.gather(*answers)
    took_s = time.perf_counter() - began_s
    return Paced(what, calls / took_s, (await fleet.cpu_s.remote() - before_s) / calls)
