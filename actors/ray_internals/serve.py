"""What has no public place in Ray Serve: the queue of a router, ports of replicas, versions, the address."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from ray._common.tls_utils import add_port_to_grpc_server
from ray.serve import Deployment
from ray.serve._private import replica as replica_module
from ray.serve._private.common import RequestMetadata
from ray.serve._private.replica_result import ReplicaResult  # the public interface names it in its signatures
from ray.serve.context import _get_global_client
from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica
from ray.util import get_node_ip_address

__all__ = [
    "MatchingRouter",
    "ReplicaResult",
    "await_proxies",
    "deployment_details",
    "deployment_version",
    "http_address",
    "listen_where_the_node_does",
    "with_version",
]


class MatchingRouter(FIFOMixin, RequestRouter):
    """Gives matched calls the replica that was chosen for them, and all others the next free one, in their order.

    Work-around: Serve chooses a replica for one waiting request, and then gives it to the first request in the queue.
    It matches requests by an id that all calls within one HTTP request share, so that it cannot tell these apart.
    Matched calls have to be made outside of any HTTP request, so that their ids differ.
    """

    def is_matched(self, request: PendingRequest) -> bool:
        """Return whether a call is to get the replica chosen for it. A subclass overrides this."""
        raise NotImplementedError

    @property
    def replica_ids(self) -> set[ReplicaID]:
        """Replicas that may get requests, by Serve's last list."""
        return set(self._replica_id_set)

    def _fulfill_next_pending_request(
        self, replica: RunningReplica, request_metadata: RequestMetadata | None = None
    ) -> None:
        # A matched call takes the replica chosen for it, past FIFO. Others keep FIFO among themselves: matched calls
        # leave the queue while Serve's rule runs, and return to its front.
        own = self._get_pending_request_matching_internal_request_id(request_metadata)
        if own is not None and self.is_matched(own):
            super(FIFOMixin, self)._fulfill_next_pending_request(replica, request_metadata)
            return
        in_order = self._pending_requests_to_fulfill
        waiting = [pending for pending in in_order if not pending.future.done()]
        in_order.clear()
        in_order.extend(pending for pending in waiting if not self.is_matched(pending))
        super()._fulfill_next_pending_request(replica, request_metadata)
        in_order.extendleft(pending for pending in waiting if self.is_matched(pending))


def await_proxies() -> None:
    _client().wait_for_proxies_serving()


def deployment_details(application: str, deployment: str) -> Mapping[str, Any]:
    """Return the controller's record of a deployment, with its replicas."""
    details: dict[str, Any] = _client().get_serve_details()["applications"][application]["deployments"][deployment]
    return details


def deployment_version(application: str, deployment: str) -> str:
    """Return the version that a deployment's replicas are to have; empty if it has none."""
    version: str | None = _client().get_deployment_info(deployment, application)[0].version
    return version or ""


def http_address() -> tuple[str, int]:
    options = _client().http_config
    return options.host, options.port


def with_version(deployment: Any, version: str | None) -> Deployment:
    """Return the deployment with a version; None: Serve derives one."""
    versioned: Deployment = deployment.options(version=version, _internal=True)
    return versioned


def listen_where_the_node_does() -> None:
    """Make this process's replica listen on 127.0.0.1 only if the node's address is a loopback one.

    Ray's own ports follow the node's address, but Serve's replicas listen for each other's calls on all addresses, by a
    constant in its code. Call it in a deployment's constructor.
    """
    node = get_node_ip_address()  # type: ignore[no-untyped-call]
    if ip_address(node).is_loopback:
        vars(replica_module)["add_port_to_grpc_server"] = _on_loopback


def _client() -> Any:
    return _get_global_client()


def _on_loopback(server: Any, address: str) -> Any:
    port = address.rpartition(":")[2]
    return add_port_to_grpc_server(server, f"127.0.0.1:{port}")  # type: ignore[no-untyped-call]
