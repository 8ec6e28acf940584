"""The fleet actor: starts the drafters, knows which are alive, leases them to generations. Off the round path.

Drafters are detached named actors, so that they outlive a restart of the fleet: it finds them again by name. A drafter
whose resources (``jetson``) are not in the cluster yet simply becomes ready when they join.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from actors.drafter import DrafterActor
from actors.lease_table import LeaseTable
from actors.messages import DrafterId
from outrider.config_schema import DrafterGroupConfig
from outrider.engines.limits import EngineLimits
from outrider.types import GenerationId

FLEET_NAME = "fleet"
_ANYWHERE = "DEFAULT"  # said aloud, or Ray keeps what a coordinator starts inside that coordinator's placement group
_PROBE_DEADLINE_S = 2.0
_RESTART_POLL_S = 1.0
_RETRY_S = 30.0

log = logging.getLogger(__name__)


class FleetActor:
    """Named actor, one per cluster namespace."""

    def __init__(self, groups: tuple[DrafterGroupConfig, ...], target: str, namespace: str) -> None:
        """Know the drafters to run; they are started by the first call."""
        self._groups = {DrafterId(group.name, i): group for group in groups for i in range(group.count)}
        self._target = target
        self._namespace = namespace
        self._table = LeaseTable()
        self._watchers: dict[DrafterId, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Start, or find again, every drafter; returns at once."""
        for drafter, group in self._groups.items():
            if drafter not in self._watchers:
                self._table.add(drafter, group.max_generations)
                self._watchers[drafter] = asyncio.create_task(self._bring_up(drafter))

    async def lease(self, generation: GenerationId, exclude: Collection[DrafterId] = ()) -> DrafterId | None:
        """Lease the least loaded ready drafter to a generation; None if there is none with room."""
        await self.start()
        return self._table.lease(generation, exclude)

    async def release(self, generation: GenerationId) -> None:
        """End a generation's lease."""
        self._table.release(generation)

    async def report_lost(self, drafter: DrafterId) -> None:
        """Told that a drafter did not answer: no new leases on it until it has proved to be alive."""
        await self.start()
        if self._watchers[drafter].done():
            self._table.mark_suspect(drafter)
            self._watchers[drafter] = asyncio.create_task(self._recover(drafter))

    async def loads(self) -> dict[str, int]:
        """Generations leased to each ready drafter, by actor name."""
        await self.start()
        return {drafter.actor_name: load for drafter, load in self._table.loads().items()}

    async def _bring_up(self, drafter: DrafterId) -> None:
        """Wait until the drafter has loaded its model, however long its node takes to join or it takes to restart."""
        while True:
            try:
                await self._handle(drafter).card.remote()
            except ActorUnavailableError:
                await asyncio.sleep(_RESTART_POLL_S)
            except RayError as error:
                log.error("drafter %s cannot be started, will be tried again: %s", drafter.actor_name, error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._table.mark_ready(drafter)
                log.info("drafter %s is ready", drafter.actor_name)
                return

    async def _recover(self, drafter: DrafterId) -> None:
        """Probe a suspect. One that is gone restarts by itself; one that hangs or is broken is killed, and restarts."""
        handle = self._handle(drafter)
        try:
            await asyncio.wait_for(handle.card.remote(), _PROBE_DEADLINE_S)
        except RayActorError:
            self._end_leases(drafter)
        except (TimeoutError, RayError):
            self._end_leases(drafter)
            ray.kill(handle, no_restart=False)
            await asyncio.sleep(_RESTART_POLL_S)
        await self._bring_up(drafter)

    def _end_leases(self, drafter: DrafterId) -> None:
        orphans = self._table.mark_lost(drafter)
        log.warning("drafter %s is lost, %d leases ended", drafter.actor_name, len(orphans))

    def _handle(self, drafter: DrafterId) -> "ActorHandle[Any]":
        """The drafter's actor, created if it does not exist."""
        group = self._groups[drafter]
        limits = EngineLimits(kv_budget_bytes=group.kv_budget_mib * 2**20)
        actor: Any = ray.remote(DrafterActor).options(
            name=drafter.actor_name,
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            scheduling_strategy=_ANYWHERE,
            num_cpus=group.num_cpus,
            num_gpus=group.num_gpus,
            resources=dict(group.resources),
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(group.threads)}},
        )
        handle: ActorHandle[Any] = actor.remote(
            group.model, self._target, group.dtype, group.device, group.threads, limits
        )
        return handle


def fleet_handle(groups: tuple[DrafterGroupConfig, ...], target: str, namespace: str) -> "ActorHandle[Any]":
    """The cluster's fleet actor, created if it does not exist."""
    actor: Any = ray.remote(FleetActor).options(
        name=FLEET_NAME,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        scheduling_strategy=_ANYWHERE,
        num_cpus=0,
    )
    handle: ActorHandle[Any] = actor.remote(groups, target, namespace)
    return handle
