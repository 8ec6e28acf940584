"""The fleet as a Ray actor: made by whoever asks for it first, and gone once its application is."""

import time
from collections.abc import Callable
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from actors.abandoned import end_named, end_when_abandoned
from actors.drafter_actors import DrafterActors
from actors.fleet import Fleet
from actors.fleet_timeouts import FleetTimeouts
from actors.head_actors import head_actor
from actors.heartbeats import FLEET_VERSION, FleetNews, Heartbeat
from actors.messages import FleetSums
from outrider.events import write_events

FLEET_NAME = "fleet"
_VERSION_DEADLINE_S = 5.0

Gauges = Callable[[], Callable[[FleetSums], None]]  # made in the fleet's process, told how things stand


class FleetActor(Fleet):
    """Named actor, one per cluster namespace. It ends with all drafters when no coordinator beats any more."""

    def __init__(self, namespace: str, gauges: Gauges) -> None:
        write_events()
        super().__init__(actors := DrafterActors(namespace), FleetTimeouts(), gauges())
        self._beaten_at_s = time.monotonic()

        def end() -> None:
            actors.end_all()
            end_named(FLEET_NAME, namespace)

        end_when_abandoned(lambda: self._beaten_at_s, end)

    async def beat(self, heartbeat: Heartbeat) -> FleetNews:
        self._beaten_at_s = time.monotonic()
        return await super().beat(heartbeat)

    async def version(self) -> int:
        """Of the heartbeats that it understands."""
        return FLEET_VERSION

    async def status(self) -> Any:
        """As ``Fleet.status``: what arrives is a ``FleetStatus``."""
        return self.packed_status()


def find_fleet(namespace: str) -> "ActorHandle[Any]":
    """The cluster's fleet actor. Asks the head: not on an event loop.

    Raises:
        ValueError: there is none.
    """
    found: ActorHandle[Any] = ray.get_actor(FLEET_NAME, namespace=namespace)
    return found


def fleet_handle(namespace: str, gauges: Gauges) -> "ActorHandle[Any]":
    """The cluster's fleet actor, created with these gauges if it does not exist.

    One that an earlier version of this code has left is ended, and learns from coordinators as after a crash. Those of
    the earlier version go on without drafters until they are replaced as well. Asks the head: not on an event loop.
    """
    fleet = head_actor(FleetActor, FLEET_NAME, namespace, namespace, gauges)
    if is_earlier(fleet):
        ray.kill(fleet, no_restart=True)
        fleet = head_actor(FleetActor, FLEET_NAME, namespace, namespace, gauges)
    return fleet


def is_earlier(fleet: Any) -> bool:
    """Whether it understands other heartbeats than this code's, of an earlier version; not of one that is silent."""
    try:
        version: int = ray.get(fleet.version.remote(), timeout=_VERSION_DEADLINE_S)
    except AttributeError:  # the first ones do not tell
        return True
    except RayError:
        return False
    return version < FLEET_VERSION
