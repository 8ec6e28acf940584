"""Other rules in the product's request router: all but the order of those that may be given a request is its own.

Of this module the classes are sent to the ingresses by value, so that it imports nothing that is not installed there.
"""

from collections.abc import Sequence

from ray.serve._private.common import ReplicaID  # the public interface names it in its signatures only
from ray.serve._private.replica_result import ReplicaResult
from ray.serve.request_router import PendingRequest, RunningReplica

from lab.simulation.fleet.rivals import ServePrefixTree, shortest
from serve_app.coordination.request_router import PrefixRouter, digests_of

_UNBOUNDED = 2**31  # places: a coordinator queues what it has none for


class RoundRobinRouter(PrefixRouter):
    """One after the other."""

    def order(self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None) -> Sequence[ReplicaID]:  # noqa: ARG002 (interface)
        """Who was sent fewest: where all are there all the time, that is in turn."""
        names = [replica.replica_id for replica in offered]
        return sorted(names, key=lambda name: (self._dispatched[name], str(name)))


class LeastLoadedRouter(PrefixRouter):
    """By responses under way alone."""

    def order(self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None) -> Sequence[ReplicaID]:  # noqa: ARG002 (interface)
        """Who has fewest; of equals, who was sent fewest."""
        loads = self.loads([replica.replica_id for replica in offered])
        return sorted(loads, key=lambda name: (loads[name], self._dispatched[name], str(name)))


class ServeLlmRouter(LeastLoadedRouter):
    """As Ray Serve LLM's prefix router chooses; by blocks of tokens, where that goes by characters."""

    def initialize_state(self, **options: object) -> None:
        """Called by Serve instead of a constructor."""
        super().initialize_state(**options)
        self._tree: ServePrefixTree[str] = ServePrefixTree()

    def order(self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None) -> Sequence[ReplicaID]:
        """The one that the rule takes, then the others by load."""
        by_load = super().order(offered, digests)
        if digests is None or not by_load:
            return by_load
        loads = {name.unique_id: load for name, load in self.loads(by_load).items()}
        chosen = shortest(self._tree.candidates(digests, loads), loads, _UNBOUNDED)
        return sorted(by_load, key=lambda name: name.unique_id != chosen)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        """Remember where a prefix will be, for good."""
        super().on_request_routed(pending_request, replica_id, result)
        digests = digests_of(pending_request)
        if digests is not None:
            self._tree.insert(digests, replica_id.unique_id)
