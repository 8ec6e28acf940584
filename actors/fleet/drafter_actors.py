"""Runs drafters as detached named Ray actors, which outlive the process that started them.

Each call asks the cluster's head, which may not answer for a while, so all run in threads.
"""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from actors.abandoned import end_named
from actors.drafter.actor import DrafterActor
from actors.fleet.timeouts import FleetTimeouts
from actors.head_actors import ANYWHERE, CALLS_KEPT
from actors.messages import DrafterId
from actors.plain_handle import PlainHandle, actor_row, listens_at
from actors.waiting import loop_now_s, within
from outrider.assembly.drafters import drafter_spec
from outrider.config.drafters import DrafterGroupConfig


class DrafterPhase(StrEnum):
    ABSENT = "absent"  # no node has its resources, or its process is being started
    LOADING = "loading"  # its constructor runs
    RUNNING = "running"  # it can answer


def phase_of(row: Mapping[str, Any]) -> DrafterPhase:
    """Return the phase by the head's record of the actor."""
    if row.get("State") == "ALIVE":
        return DrafterPhase.RUNNING
    return DrafterPhase.ABSENT if listens_at(row) is None else DrafterPhase.LOADING


class DrafterActors:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    async def find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> Any:
        """Return the named actor, created if it does not exist. Ray holds it until the cluster has its resources."""
        return await asyncio.to_thread(self._find, drafter, group, target)

    async def restart(self, handle: Any) -> None:
        """Kill the process; Ray starts it again under the same handle."""
        await asyncio.to_thread(ray.kill, handle.ray_handle, no_restart=False)

    async def phase(self, handle: Any) -> DrafterPhase:
        return phase_of(await asyncio.to_thread(actor_row, handle))

    async def stop(self, drafter: DrafterId) -> None:
        await asyncio.to_thread(end_named, drafter.actor_name, self._namespace)

    async def running(self) -> frozenset[DrafterId]:
        """Return all drafters of the namespace, whoever started them."""
        return await asyncio.to_thread(self._running)

    def end_all(self) -> None:
        """Kill all drafters for good. Blocks while the head is away."""
        for drafter in self._running():
            end_named(drafter.actor_name, self._namespace)

    def _running(self) -> frozenset[DrafterId]:
        named: list[dict[str, str]] = list_named_actors(all_namespaces=True)
        found = (DrafterId.named(each["name"]) for each in named if each["namespace"] == self._namespace)
        return frozenset(drafter for drafter in found if drafter is not None)

    def _find(self, drafter: DrafterId, group: DrafterGroupConfig, target: str) -> PlainHandle:
        actor: Any = ray.remote(DrafterActor).options(
            name=drafter.actor_name,
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            scheduling_strategy=ANYWHERE,
            num_cpus=group.num_cpus,
            num_gpus=group.num_gpus,
            resources=dict(group.resources),
            enable_task_events=CALLS_KEPT,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(group.threads)}},
        )
        return PlainHandle(actor.remote(drafter_spec(group, target), group.link, drafter.index))


async def card_in_time(handle: Any, actors: DrafterActors, timeouts: FleetTimeouts) -> Any:
    """Return the drafter's card.

    Raises:
        TimeoutError: its process is there and has not answered for longer than loading, or an answer, may take.
    """
    most_s = {DrafterPhase.LOADING: timeouts.start_deadline_s, DrafterPhase.RUNNING: timeouts.proof_deadline_s}
    # One call throughout: Ray holds it until the actor is up. Only time with a process counts against a deadline.
    asked: asyncio.Future[Any] = asyncio.ensure_future(handle.card.remote())
    silent_since_s = dict[DrafterPhase, float]()
    try:
        while not (await asyncio.wait({asked}, timeout=timeouts.start_poll_s))[0]:
            phase = await _phase(handle, actors, timeouts)
            allowed_s = most_s.get(phase)
            if allowed_s is None:
                silent_since_s.clear()
                continue
            silent_s = loop_now_s() - silent_since_s.setdefault(phase, loop_now_s())
            if silent_s >= allowed_s and not asked.done():
                raise TimeoutError(f"needs to answer within {allowed_s:g} s, found its process {phase} and silent")
        return await asked
    finally:
        asked.cancel()


async def _phase(handle: Any, actors: DrafterActors, timeouts: FleetTimeouts) -> DrafterPhase:
    try:
        return await within(timeouts.probe_deadline_s, actors.phase(handle))
    except (TimeoutError, RayError):  # the head is away: no deadline runs while the phase is unknown
        return DrafterPhase.ABSENT
