"""The fleet's gauges, and the fleet that sets them: one process tells of all drafters, whoever else there is."""

from collections import Counter
from typing import Any

from ray.actor import ActorHandle

from actors.fleet_actor import fleet_handle
from actors.messages import FleetStatus
from serve_app import metrics
from serve_app.metrics import Sink, in_ray


class FleetGauges:
    """Of one fleet."""

    def __init__(self, sink: Sink) -> None:
        """Set nothing yet."""
        self._sink = sink
        self._gauged: set[tuple[str, str]] = set()

    def __call__(self, status: FleetStatus) -> None:
        """Set them."""
        states = Counter((drafter.group, str(drafter.state)) for drafter in status.drafters)
        leases: Counter[str] = Counter()
        for drafter in status.drafters:
            leases[drafter.group] += drafter.generations
        self._gauged |= set(states)
        for group, state in self._gauged:  # a state nobody is in any more has to be told as well
            self._sink.record(metrics.DRAFTERS, states[group, state], group=group, state=state)
        for group in {group for group, _ in self._gauged}:  # nor a group that is gone
            self._sink.record(metrics.LEASES, leases[group], group=group)


def exported() -> FleetGauges:
    """Made in the fleet's process."""
    return FleetGauges(Sink(in_ray))


def application_fleet(namespace: str) -> "ActorHandle[Any]":
    """The cluster's fleet actor, created if it does not exist. Asks the head: not on an event loop."""
    return fleet_handle(namespace, exported)
