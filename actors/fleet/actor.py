"""Runs the fleet as a named Ray actor: the first caller creates it, and it ends once its application is gone."""

import time
from collections.abc import Callable
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from actors.abandoned import end_named, end_when_abandoned
from actors.fleet.drafter_actors import DrafterActors
from actors.fleet.fleet import Fleet
from actors.fleet.gateway_actors import GatewayActors
from actors.fleet.timeouts import FleetTimeouts
from actors.head_actors import head_actor
from actors.heartbeats import FLEET_VERSION, FleetNews, Heartbeat
from actors.messages import FleetSums
from outrider.events import write_events

FLEET_NAME = "fleet"
_VERSION_DEADLINE_S = 5.0

Gauges = Callable[[], Callable[[FleetSums], None]]  # called in the fleet's process; the result is called with its sums


class FleetActor(Fleet):
    """Named actor, one per cluster namespace. Without heartbeats for a minute it stops all drafters and ends."""

    def __init__(self, namespace: str, gauges: Gauges) -> None:
        write_events()
        gateways = GatewayActors(FLEET_NAME, namespace, self.gateway_addresses)
        super().__init__(actors := DrafterActors(namespace), FleetTimeouts(), gauges(), gateways)
        self._beaten_at_s = time.monotonic()

        def end() -> None:
            actors.end_all()
            gateways.end_all()
            end_named(FLEET_NAME, namespace)

        end_when_abandoned(lambda: self._beaten_at_s, end)

    async def beat(self, heartbeat: Heartbeat) -> FleetNews:
        self._beaten_at_s = time.monotonic()
        return await super().beat(heartbeat)

    async def version(self) -> int:
        return FLEET_VERSION

    async def status(self) -> Any:
        """Return the packed status, which becomes a ``FleetStatus`` when the caller's process unpickles it."""
        return self.packed_status()


def find_fleet(namespace: str) -> "ActorHandle[Any]":
    """Return the cluster's fleet actor; ValueError: there is none. Asks the head: call it in a thread."""
    found: ActorHandle[Any] = ray.get_actor(FLEET_NAME, namespace=namespace)
    return found


def fleet_handle(namespace: str, gauges: Gauges) -> "ActorHandle[Any]":
    """Return the cluster's fleet actor, created with these gauges if it does not exist.

    A fleet of an earlier code version is killed and replaced; the new one learns from heartbeats as after a crash.
    Coordinators of the earlier version have no drafters until they are replaced. Call it in a thread: it asks the head.
    """
    fleet = head_actor(FleetActor, FLEET_NAME, namespace, namespace, gauges)
    if is_earlier(fleet):
        ray.kill(fleet, no_restart=True)
        fleet = head_actor(FleetActor, FLEET_NAME, namespace, namespace, gauges)
    return fleet


def is_earlier(fleet: Any) -> bool:
    """Return whether the fleet has an earlier version of heartbeats; False if it does not answer in 5 s."""
    try:
        version: int = ray.get(fleet.version.remote(), timeout=_VERSION_DEADLINE_S)
    except AttributeError:  # the first versions have no such method
        return True
    except RayError:
        return False
    return version < FLEET_VERSION
