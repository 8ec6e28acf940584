"""Sends a generation to the coordinator that has most of its prefix in KV memory, unless that one is overloaded.

Runs inside each ingress, as the request router of its handle to the coordinators. Load is counted when a request is
dispatched, not when the replica reports it: a burst would otherwise all go to one.
"""

from collections import Counter
from collections.abc import Collection

from ray.serve._private.common import ReplicaID  # the public interface names it in its signatures only
from ray.serve._private.replica_result import ReplicaResult
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from outrider.routing.prefix_index import PrefixIndex, leading_digests
from outrider.routing.scores import ranked
from outrider.types import GenerationRequest

_BLOCK_TOKENS = 16
_MAX_BLOCKS = 100_000  # about 10 MiB


class PrefixRouter(RequestRouter):
    """Serve's request router, ranking replicas by ``outrider.routing.scores``."""

    def initialize_state(self, **_: object) -> None:
        """Called by Serve instead of a constructor."""
        self._index: PrefixIndex[ReplicaID] = PrefixIndex(_MAX_BLOCKS)
        self._dispatched: Counter[ReplicaID] = Counter()
        self._at: dict[str, ReplicaID] = {}  # requests under way, by Serve's id

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Every replica in a rank of its own: the next one is asked only if those before it are full."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # all are offered at once
        replicas = {replica.replica_id: replica for replica in candidate_replicas}
        blocks = self._index.matches(_digests(pending_request) or [])
        cached_tokens = {replica: count * _BLOCK_TOKENS for replica, count in blocks.items()}
        order = ranked(sorted(replicas, key=str), cached_tokens, self._ongoing(replicas), self._dispatched)
        return [[replicas[replica]] for replica in order]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        """Count the request and remember where its prefix will be."""
        super().on_request_routed(pending_request, replica_id, result)
        digests = _digests(pending_request)
        if digests is not None:
            self._dispatched[replica_id] += 1
            self._index.insert(digests, replica_id)
            self._at[pending_request.metadata.internal_request_id] = replica_id

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """The request is no longer under way."""
        super().on_request_completed(replica_id, internal_request_id)
        self._at.pop(internal_request_id, None)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """What it held is gone."""
        super().on_replica_actor_died(replica_id)
        self._index.forget(replica_id)
        self._at = {request: at for request, at in self._at.items() if at != replica_id}

    def _ongoing(self, replicas: Collection[ReplicaID]) -> dict[ReplicaID, int]:
        """Responses under way: those of this ingress, or what the replica last said if that is more."""
        own = Counter(self._at.values())
        return {replica: max(own[replica], self.replica_queue_len_cache.get(replica) or 0) for replica in replicas}


def _digests(request: PendingRequest | None) -> list[bytes] | None:
    """Of a generation's prefix; None for calls that are no generation."""
    first = request.args[0] if request is not None and request.args else None
    if not isinstance(first, GenerationRequest):
        return None
    return leading_digests((*first.prompt_ids, *first.output_ids), _BLOCK_TOKENS)
