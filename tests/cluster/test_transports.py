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
from tests.unit.actors.coordinator.transport_suite import CARD, SOON_S, Lies, Rig, SuiteDrafter, every_check


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
        self._actor: Any = ray.remote(SuiteActor).options(num_cpus=0, max_restarts=0).remote()
        self.transport = RayDrafterTransport("d", PlainHandle(self._actor))

    async def go_on(self) -> None:
        """As the interface says; nothing that it returns is read."""
        await self._actor.go_on.remote()

    async def lose(self, generation: GenerationId) -> None:
        """As the interface says."""
        await self._actor.close.remote(generation)

    async def end(self) -> None:
        """Kill the process."""
        ray.kill(self._actor)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    yield
    ray.shutdown()


@every_check
@pytest.mark.usefixtures("cluster")
def test_ray_does_a_transports_work(check: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        rig = RayRig()
        await rig.transport.probe(b"?", 1, SOON_S)  # its process has come up
        try:
            await check(rig)
        finally:
            await rig.end()

    asyncio.run(within(3 * SOON_S, run()))
