"""Other rules in the product's request router: only the order of the candidates differs.

The classes of this module are pickled by value for the ingresses, so it imports nothing that is not installed there.
"""

from collections.abc import Sequence

from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

from actors.ray_internals.serve import ReplicaResult
from lab.simulation.fleet.rivals import ServePrefixTree, shortest
from serve_app.coordination.request_router import PrefixRouter, digests_of

_UNBOUNDED = 2**31  # places: a coordinator queues what it has no place for


class RoundRobinRouter(PrefixRouter):
    def order(self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None) -> Sequence[ReplicaID]:  # noqa: ARG002 (interface)
        """Fewest requests sent first: round robin while all replicas are there."""
        names = [replica.replica_id for replica in offered]
        return sorted(names, key=lambda name: (self._dispatched[name], str(name)))


class LeastLoadedRouter(PrefixRouter):
    """By responses in progress only."""

    def order(self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None) -> Sequence[ReplicaID]:  # noqa: ARG002 (interface)
        """Fewest in progress first; ties go to the one that was sent fewest."""
        loads = self.loads([replica.replica_id for replica in offered])
        return sorted(loads, key=lambda name: (loads[name], self._dispatched[name], str(name)))


class ServeLlmRouter(LeastLoadedRouter):
    """As Ray Serve LLM's prefix router chooses, but by blocks of tokens instead of characters."""

    def initialize_state(self, **options: object) -> None:
        """Called by Serve instead of a constructor."""
        super().initialize_state(**options)
        self._tree: ServePrefixTree[str] = ServePrefixTree()

    def order(self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None) -> Sequence[ReplicaID]:
        """The rule's choice first, then the others by load."""
        by_load = super().order(offered, digests)
        if digests is None or not by_load:
            return by_load
        loads = {name.unique_id: load for name, load in self.loads(by_load).items()}
        chosen = shortest(self._tree.candidates(digests, loads), loads, _UNBOUNDED)
        return sorted(by_load, key=lambda name: name.unique_id != chosen)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        """Remember permanently which replica has the prefix."""
        super().on_request_routed(pending_request, replica_id, result)
        digests = digests_of(pending_request)
        if digests is not None:
            self._tree.insert(digests, replica_id.unique_id)
