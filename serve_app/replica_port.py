"""Makes Serve's replicas on a loopback node listen for each other's calls on 127.0.0.1 only (a work-around)."""

from ipaddress import ip_address
from typing import Any

from ray._common.tls_utils import add_port_to_grpc_server
from ray.serve._private import replica
from ray.util import get_node_ip_address


def listen_where_the_node_does() -> None:
    """Listen on 127.0.0.1 only if the node's address is a loopback one; call it in a deployment's constructor.

    Ray's own ports follow the node's address, but Serve's replicas listen on all addresses, by a constant in its code.
    """
    node = get_node_ip_address()  # type: ignore[no-untyped-call]
    if ip_address(node).is_loopback:
        vars(replica)["add_port_to_grpc_server"] = _on_loopback


def _on_loopback(server: Any, address: str) -> Any:
    port = address.rpartition(":")[2]
    return add_port_to_grpc_server(server, f"127.0.0.1:{port}")  # type: ignore[no-untyped-call]
