"""Sets the gauges of all drafters, in the fleet's process only, so that no drafter is counted twice."""

from collections.abc import Mapping
from typing import Any

from ray.actor import ActorHandle

from actors.fleet.actor import fleet_handle
from actors.messages import DrafterState, FleetSums
from outrider.wire.replies import SentSegments
from serve_app import metrics
from serve_app.metrics import Sink, in_ray


class FleetGauges:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._gauged: set[tuple[str, DrafterState]] = set()
        self._sent: dict[str, SentSegments] = {}  # as exported last
        self._carried_bytes: Mapping[tuple[str, str], int] = {}  # likewise
        self._refused: Mapping[str, int] = {}  # likewise

    def __call__(self, sums: FleetSums) -> None:
        self._gauged |= {key for key, drafters in sums.drafters.items() if drafters}
        for group, state in self._gauged:  # also states without drafters now: their gauge must go back to 0
            self._sink.record(metrics.DRAFTERS, sums.drafters.get((group, state), 0), group=group, state=str(state))
        for group in {group for group, _ in self._gauged}:  # also groups that are gone
            self._sink.record(metrics.LEASES, sums.leases.get(group, 0), group=group)
        for group, sent in sums.sent.items():
            before, self._sent[group] = self._sent.get(group, SentSegments()), sent
            self._sink.record(metrics.UP_SENT_SEGMENTS, sent.segments - before.segments, group=group)
            self._sink.record(metrics.UP_RESENT_SEGMENTS, sent.resent - before.resent, group=group)
        for (group, direction), carried in sums.carried_bytes.items():
            more = carried - self._carried_bytes.get((group, direction), 0)
            self._sink.record(metrics.WIRE_BITS, 8 * more, group=group, direction=direction)
        for reason, dials in sums.refused.items():
            self._sink.record(metrics.REFUSED_DIALS, dials - self._refused.get(reason, 0), reason=reason)
        for drafter, strikes in sums.strikes.items():
            self._sink.record(metrics.DEVICE_STRIKES, strikes, drafter=drafter)
        for which, gateways in sums.gateways.items():
            self._sink.record(metrics.GATEWAYS, gateways, state=which)
        self._carried_bytes, self._refused = sums.carried_bytes, sums.refused


def exported() -> FleetGauges:
    return FleetGauges(Sink(in_ray))


def application_fleet(namespace: str) -> "ActorHandle[Any]":
    """Return the cluster's fleet actor, created if it does not exist. Call it in a thread: it asks the head."""
    return fleet_handle(namespace, exported)
