"""What an earlier version of the code has left behind in a cluster."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from actors.fleet.actor import FLEET_NAME, fleet_handle
from actors.heartbeats import FLEET_VERSION
from actors.messages import FleetSums
from tests.cluster.served import Service

NAMESPACE = "of_an_earlier_version"
_WITHIN_S = 60.0


class Untold:
    """A fleet from before they told their version."""

    async def beat(self, heartbeat: object) -> None:
        """Understand nothing of it."""


class Earlier(Untold):
    """One that tells."""

    async def version(self) -> int:
        """The last one before this one's."""
        return FLEET_VERSION - 1


def no_gauges() -> Callable[[FleetSums], None]:
    """Export nothing."""
    return lambda _: None


@pytest.fixture(params=[Untold, Earlier])
def left_behind(request: pytest.FixtureRequest, service: Service) -> Iterator[Any]:
    """One of them, by the fleet's name in a namespace of its own, in the cluster of the service."""
    assert service.drafters("ready")
    options = {"name": FLEET_NAME, "namespace": NAMESPACE, "lifetime": "detached", "num_cpus": 0}
    yield ray.remote(request.param).options(**options).remote()
    ray.kill(ray.get_actor(FLEET_NAME, namespace=NAMESPACE))


def test_a_fleet_of_an_earlier_version_gives_way(left_behind: Any) -> None:
    ray.get(left_behind.beat.remote(None), timeout=_WITHIN_S)
    fleet: Any = fleet_handle(NAMESPACE, no_gauges)
    assert ray.get(fleet.version.remote(), timeout=_WITHIN_S) == FLEET_VERSION
    with pytest.raises(RayActorError):
        ray.get(left_behind.beat.remote(None), timeout=_WITHIN_S)
    fleet_handle(NAMESPACE, no_gauges)
    assert ray.get(fleet.version.remote(), timeout=_WITHIN_S) == FLEET_VERSION, "nobody ends one of this version"
