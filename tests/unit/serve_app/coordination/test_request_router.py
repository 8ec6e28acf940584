"""Serve's routing by this project's router: who is meant is reached, whoever else waits to be routed."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID, RequestMetadata
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.request_router.replica_wrapper import RunningReplica

from serve_app.coordination.request_router import Listener, PrefixRouter
from tests.unit.serve_app.api.in_memory_service import request_for
from tests.unit.virtual_clock import on_loop

DEPLOYMENT = DeploymentID("Coordinator", "outrider")
NAMES = ("x", "y", "z")


@dataclass(frozen=True)
class Replica:
    """As far as a router looks at one; it answers after some turns of the event loop."""

    name: str
    turns: int
    max_ongoing_requests: int = 1000
    node_id: str = "node"
    availability_zone: str | None = None
    multiplexed_model_ids: frozenset[str] = field(default_factory=frozenset)

    @property
    def replica_id(self) -> ReplicaID:
        return ReplicaID(self.name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:  # noqa: ARG002 (interface)
        for _ in range(self.turns):
            await asyncio.sleep(0)
        return 0


def pending(number: int, first: object, *, shared: str | None = None) -> PendingRequest:
    return PendingRequest([first], {}, RequestMetadata(f"request {number}", shared or f"call {number}"))


async def routed(router: Any, call: PendingRequest) -> RunningReplica:
    replica: RunningReplica = await router._choose_replica_for_request(call)  # noqa: SLF001 (what Serve calls)
    return replica


@pytest.mark.parametrize("turns", [(0, 0, 0), (9, 0, 3), (0, 5, 1)])
@on_loop
async def test_a_call_that_is_meant_for_one_coordinator_reaches_it(turns: tuple[int, ...]) -> None:
    router: Any = PrefixRouter(  # type: ignore[no-untyped-call]
        DEPLOYMENT, DeploymentHandleSource.REPLICA, use_replica_queue_len_cache=False
    )
    router.initialize_state()
    replicas = [Replica(name, after) for name, after in zip(NAMES, turns, strict=True)]
    router.update_replicas(cast("list[RunningReplica]", replicas))
    calls = list[tuple[PendingRequest, str | None]]()
    for number in range(30):
        meant = NAMES[number % 3] if number % 2 else None
        first: Any = request_for(str(number)) if meant is None else Listener("ingress", meant)
        calls.append((pending(number, first, shared=None if meant else "one HTTP request"), meant))
    async with asyncio.timeout(60.0):
        chosen = await asyncio.gather(*(routed(router, call) for call, _ in calls))
    assert all(meant in (None, replica.replica_id.unique_id) for (_, meant), replica in zip(calls, chosen, strict=True))
    gone = pending(99, Listener("ingress", "gone"))
    async with asyncio.timeout(60.0):
        assert (await routed(router, gone)).replica_id.unique_id in NAMES, "who will say so"
