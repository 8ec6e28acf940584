"""The suite of transports over Ray: a drafter's actor in a process of its own, called as coordinators call it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray

from actors.coordinator.transport import RayDrafterTransport
from actors.drafter.actor import DrafterActor
from actors.plain_handle import PlainHandle
from actors.waiting import within
from edge.host import DrafterHost
from outrider.contracts.requests import GenerationId
from outrider.wire.replies import DrafterHoldings
from tests.cluster.clusters import Clusters
from tests.unit.actors.coordinator.transport_suite import (
    CARD,
    CHECKS,
    SOON_S,
    Lies,
    Rig,
    SuiteDrafter,
    name_of,
    one_that_is_gone_is_lost,
)

CLUSTER = "transports"  # a Ray of its own, behind the clusters that others share
_UP_S = 300.0  # on a busy machine


class SuiteActor(Lies, DrafterActor):
    """Without a model that is loaded."""

    def __init__(self) -> None:
        self.drafter = SuiteDrafter()
        DrafterHost.__init__(self, self.drafter, CARD, ThreadPoolExecutor(1))

    async def go_on(self) -> None:
        """Let the stuck generation be drafted."""
        self.drafter.may_go_on.set()


class RayRig:
    """An actor, and the way to it."""

    def __init__(self) -> None:
        actor: Any = ray.remote(SuiteActor).options(num_cpus=0, max_restarts=0)
        self._actor = actor.remote()
        self.transport = RayDrafterTransport("d", PlainHandle(self._actor))

    async def go_on(self) -> None:
        await self._actor.go_on.remote()

    async def lose(self, generation: GenerationId) -> None:
        await self._actor.close.remote(generation)

    async def end(self) -> None:
        ray.kill(self._actor)

    async def forget_all(self) -> None:
        """As it came up: the checks share one process, whose start takes long."""
        await self.transport.probe(b"?", 1, _UP_S)
        held = await PlainHandle(self._actor).held.remote()
        assert isinstance(held, DrafterHoldings)
        await asyncio.gather(*map(self.lose, held.generations))


@pytest.fixture(scope="module")
def rig(clusters: Clusters) -> Iterator[RayRig]:
    clusters.end()
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    yield RayRig()
    ray.shutdown()


@pytest.mark.parametrize("check", sorted(CHECKS, key=lambda check: check is one_that_is_gone_is_lost), ids=name_of)
def test_ray_does_a_transports_work(check: Callable[[Rig], Awaitable[None]], rig: RayRig) -> None:
    async def run() -> None:
        await rig.forget_all()
        await check(rig)

    asyncio.run(within(_UP_S + SOON_S, run()))
