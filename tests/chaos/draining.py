"""Has a gateway's devices move to the others before it is ended, as one that is not wanted any more does."""

import time
from typing import Any

import ray
from ray.exceptions import RayError

from tests.chaos.processes import becomes
from tests.cluster.served import Service

_DRAINED_WITHIN_S = 60.0


def running_gateways(service: Service) -> list[dict[str, Any]]:
    """What the fleet says of those that run."""
    return [gateway for gateway in service.get("/status").get("gateways", []) if gateway["address"]]


def drained(service: Service, which: int, within_s: float) -> str:
    """Drain one, once there is another; how it is known that it did, empty if it was lost meanwhile."""
    if not becomes(lambda: len(running_gateways(service)) > 1, within_s):
        return ""
    running = running_gateways(service)
    chosen = running[which % len(running)]
    began_s = time.monotonic()
    try:
        actor: Any = ray.get_actor(chosen["name"], namespace=service.config.cluster.namespace)
        others = tuple(gateway["address"] for gateway in running if gateway is not chosen)
        ray.get(actor.drain.remote(others), timeout=_DRAINED_WITHIN_S)
        ray.kill(actor, no_restart=False)
    except (RayError, ValueError):  # the latter of a name that is not known
        return ""
    return f"{chosen['name']} let {chosen['devices']} devices go in {time.monotonic() - began_s:.1f} s"
