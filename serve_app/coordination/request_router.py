"""Routes a generation to the coordinator that has most of its prefix in KV memory, unless that one is overloaded.

A generation whose prefix this ingress has sent nowhere goes to the coordinator that the other ingresses would choose,
too (``routing.affinity``).

The router runs inside each ingress, in Serve's handle to the coordinators. It counts load when a request is sent, not
when the replica reports it: otherwise a burst would all go to one replica.

Calls meant for one coordinator (``Listener``) must get theirs (``MatchingRouter``): they are made outside of any HTTP
request.
"""

from collections import Counter
from collections.abc import Sequence

from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

from actors.ray_internals.serve import MatchingRouter, ReplicaResult
from outrider.contracts.requests import GenerationRequest
from outrider.routing.affinity import Affinity
from outrider.routing.draining import RoutedCoordinator
from outrider.routing.load_units import NOTHING_REPORTED, CoordinatorLoad
from outrider.routing.prefix_index import BLOCK_TOKENS, leading_digests
from outrider.routing.scores import ranked, takers
from serve_app.coordination import draining
from serve_app.coordination.listener import BY_RESPONSES, PLACES, TAKEN, TARGET, TOKEN_MAP, VERIFIER_UP, Listener

_UNKNOWN = 2**31  # places of a replica that has reported nothing yet


class PrefixRouter(MatchingRouter):
    """Serve's request router, ranking replicas by ``outrider.routing.scores``. All of it runs on one event loop."""

    def initialize_state(self, **_: object) -> None:
        """Set up the state. Serve calls this instead of a constructor."""
        self._affinity: Affinity[ReplicaID] = Affinity()
        self._dispatched: Counter[ReplicaID] = Counter()
        self._ongoing: Counter[ReplicaID] = Counter()
        # Each replica's last report, and the responses that this ingress had there when the report changed.
        self._reported: dict[ReplicaID, tuple[CoordinatorLoad, int]] = {}
        self._loading: set[ReplicaID] = set()
        self._absent: set[ReplicaID] = set()
        self._streams: dict[str, ReplicaID] = {}  # chunk streams by call id: counted by Serve, but no load

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return each replica in a rank of its own: Serve asks the next one only if those before it are full."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # all ranks are returned, so a retry at once is vain
        meant = _of_target(_meant(candidate_replicas, pending_request), pending_request)
        offered = self._with_verifiers(meant, pending_request)
        replicas = {replica.replica_id: replica for replica in offered}
        return [
            [replicas[replica]]
            for replica in self.order(offered, digests_of(pending_request), affinity_of(pending_request))
        ]

    def order(
        self, offered: Sequence[RunningReplica], digests: Sequence[bytes] | None, affinity: bytes = b""
    ) -> Sequence[ReplicaID]:
        """Rank replicas, best first; ``digests`` are of a generation's prefix. A subclass may override this rule."""
        names = sorted((replica.replica_id for replica in offered), key=str)
        return ranked(
            names,
            cached_tokens=self._affinity.tokens(digests or [], names, affinity),
            ongoing=self.loads(names),
            dispatched=self._dispatched,
            capacity={replica.replica_id: replica.routing_stats.get(PLACES, _UNKNOWN) for replica in offered},
            reported={name: self._reported[name][0] for name in names if name in self._reported},
        )

    def loads(self, replicas: Sequence[ReplicaID]) -> dict[ReplicaID, int]:
        """Return all ingresses' responses at each replica, by its last report and what this ingress did since."""
        streams = Counter(self._streams.values())
        return {replica: self._load(replica, streams[replica]) for replica in replicas}

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Take in Serve's list of replicas. Dead and draining ones are not on it: they get no more requests.

        A replica's prefixes are forgotten only when it is missing from two lists in a row: one that takes in a new
        ``user_config`` is missing from one list, and keeps its KV.
        """
        before = self.replica_ids
        super().update_replicas(replicas)
        self._note_extension(replicas)
        draining.update({replica.replica_id.unique_id: self._place(replica) for replica in replicas})
        present = self.replica_ids
        for replica_id in self._absent - present:
            self._forget(replica_id)
        self._absent = before - present

    def _note_extension(self, replicas: Sequence[RunningReplica]) -> None:
        """Note each changed report with the responses that this ingress had there: the report includes these."""
        before, streams = self._reported, Counter(self._streams.values())
        self._reported = {}
        for replica in replicas:
            name, said = replica.replica_id, _fullness(replica)
            news = name not in before or before[name][0] != said
            self._reported[name] = (said, self._ongoing[name] - streams[name]) if news else before[name]

    def _place(self, replica: RunningReplica) -> RoutedCoordinator:
        stats = replica.routing_stats
        return RoutedCoordinator(
            str(stats.get(TARGET, "")), bool(stats.get(VERIFIER_UP, False)), self._reported[replica.replica_id][0]
        )

    def _with_verifiers(self, offered: list[RunningReplica], request: PendingRequest | None) -> list[RunningReplica]:
        """Return replicas whose verifier can begin a generation; forget prefixes at those whose verifier was lost."""
        if _listener(request) is not None:
            return offered
        loading = {replica.replica_id for replica in offered if not replica.routing_stats.get(VERIFIER_UP, True)}
        for replica in loading - self._loading:
            self._affinity.forget(replica)
        self._loading = loading
        names = {replica.replica_id: replica.replica_id.unique_id for replica in offered}
        known = [names[replica] for replica in loading]
        may = set(takers(list(names.values()), known, _lost(request)))
        return [replica for replica in offered if replica.replica_id.unique_id in may]

    def is_matched(self, request: PendingRequest) -> bool:
        return _listener(request) is not None

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """Count a request. Serve calls ``on_request_completed`` for each, whether the replica accepted it or not."""
        super().on_send_request(replica_id)
        self._ongoing[replica_id] += 1

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        super().on_request_completed(replica_id, internal_request_id)
        self._streams.pop(internal_request_id, None)
        self._ongoing[replica_id] = max(0, self._ongoing[replica_id] - 1)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        super().on_request_routed(pending_request, replica_id, result)
        if _listener(pending_request) is not None and pending_request.metadata.is_streaming:
            self._streams[pending_request.metadata.internal_request_id] = replica_id
        digests = digests_of(pending_request)
        if digests is not None:
            self._dispatched[replica_id] += 1
            self._affinity.note(digests, replica_id)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        draining.died(replica_id.unique_id)
        self._forget(replica_id)

    def _forget(self, replica_id: ReplicaID) -> None:
        self._affinity.forget(replica_id)
        self._ongoing.pop(replica_id, None)
        self._dispatched.pop(replica_id, None)
        self._streams = {call: replica for call, replica in self._streams.items() if replica != replica_id}

    def _load(self, replica: ReplicaID, streams: int) -> int:
        """Return the responses at a replica, without chunk streams, which outlast their responses by a second."""
        calls = max(self._ongoing[replica], self.replica_queue_len_cache.get(replica) or 0)
        said, ongoing = self._reported.get(replica, (NOTHING_REPORTED, 0))
        return max(0, calls - streams, round(said.responses) + self._ongoing[replica] - streams - ongoing)


def _meant(replicas: list[RunningReplica], request: PendingRequest | None) -> list[RunningReplica]:
    """Return the replica that a listener's call names; if it is gone, all, as any raises ``GenerationFailedError``."""
    listener = _listener(request)
    if listener is None:
        return replicas
    return [replica for replica in replicas if replica.replica_id.unique_id == listener.coordinator] or replicas


def _of_target(replicas: list[RunningReplica], request: PendingRequest | None) -> list[RunningReplica]:
    """Return replicas with the generation's target and token map; if there are none, all, as any refuses it."""
    first = request.args[0] if request is not None and request.args else None
    if not isinstance(first, GenerationRequest):
        return replicas
    wanted = {TARGET: first.target, TOKEN_MAP: first.token_map}
    fit = [each for each in replicas if all(_may_be(each.routing_stats.get(of), to) for of, to in wanted.items())]
    return fit or replicas


def _fullness(replica: RunningReplica) -> CoordinatorLoad:
    """Return the load in the replica's last report; zero before the first."""
    stats = replica.routing_stats
    return CoordinatorLoad(stats.get(TAKEN, 0.0), stats.get(BY_RESPONSES, 0.0))


def _may_be(reported: object, wanted: str) -> bool:
    """Return whether a report fits; a replica that has not reported yet may be anything."""
    return not wanted or reported in (None, wanted)


def _listener(request: PendingRequest | None) -> Listener | None:
    first = request.args[0] if request is not None and request.args else None
    return first if isinstance(first, Listener) else None


def _lost(request: PendingRequest | None) -> tuple[str, ...]:
    """Return coordinators that the generation's ingress has just found without their verifiers."""
    args = () if request is None else request.args
    return args[2] if len(args) > 2 and isinstance(args[0], GenerationRequest) else ()


def affinity_of(request: PendingRequest | None) -> bytes:
    """Return what a generation is routed by where no prefix decides."""
    first = request.args[0] if request is not None and request.args else None
    return first.affinity if isinstance(first, GenerationRequest) else b""


def digests_of(request: PendingRequest | None) -> list[bytes] | None:
    """Return digests of the leading blocks of a generation's prefix; None for calls that are not generations."""
    first = request.args[0] if request is not None and request.args else None
    if not isinstance(first, GenerationRequest):
        return None
    return leading_digests((*first.prompt_ids, *first.output_ids), BLOCK_TOKENS, first.cache_salt)
