"""The suite of transports to a drafter's actor in a process of its own, over Ray and over its stream."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import ray

from actors.coordinator.drafter_streams import DrafterStream
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

    def __init__(self, *, streams: bool) -> None:
        actor: Any = ray.remote(SuiteActor).options(num_cpus=0, max_restarts=0)
        self._actor, self._streams, self._stream = actor.remote(), streams, cast("DrafterStream | None", None)
        self.transport = RayDrafterTransport("d", PlainHandle(self._actor))

    async def go_on(self) -> None:
        await self._actor.go_on.remote()

    async def lose(self, generation: GenerationId) -> None:
        await self._actor.close.remote(generation)

    async def end(self) -> None:
        ray.kill(self._actor)  # this process takes it for dead at once, though it is still ending
        while self._stream is not None and self._stream.reach() is not None:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)

    async def forget_all(self) -> None:
        """As it came up: the checks share one process, whose start takes long."""
        await self.transport.probe(b"?", 1, _UP_S)
        held = await PlainHandle(self._actor).held.remote()
        assert isinstance(held, DrafterHoldings)
        await asyncio.gather(*map(self.lose, held.generations))
        if self._streams:
            handle = PlainHandle(self._actor)
            self._stream = stream = DrafterStream("d", handle, lambda _: None)
            while stream.reach() is None:  # noqa: ASYNC110 (nobody tells)
                await asyncio.sleep(0.01)
            self.transport = RayDrafterTransport("d", handle, stream)


@pytest.fixture(scope="module", params=["ray", "stream"])
def rig(clusters: Clusters, request: pytest.FixtureRequest) -> Iterator[RayRig]:
    clusters.end()
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    yield RayRig(streams=request.param == "stream")
    ray.shutdown()


@pytest.mark.parametrize("check", sorted(CHECKS, key=lambda check: check is one_that_is_gone_is_lost), ids=name_of)
def test_an_actors_transport_does_its_work(check: Callable[[Rig], Awaitable[None]], rig: RayRig) -> None:
    async def run() -> None:
        await rig.forget_all()
        await check(rig)

    asyncio.run(within(_UP_S + SOON_S, run()))
