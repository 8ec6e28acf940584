"""Where Serve's replicas listen for calls of each other."""

from ipaddress import ip_address
from typing import Any

from ray._common.tls_utils import add_port_to_grpc_server
from ray.serve._private import replica
from ray.util import get_node_ip_address


def listen_where_the_node_does() -> None:
    """Have this process's replica listen on 127.0.0.1 alone if its node does; call it in a deployment's constructor.

    Ray's own ports follow the node's address, but Serve has replicas listen on all of the machine's, by a constant.
    """
    node = get_node_ip_address()  # type: ignore[no-untyped-call]
    if ip_address(node).is_loopback:
        vars(replica)["add_port_to_grpc_server"] = _on_loopback


def _on_loopback(server: Any, address: str) -> Any:
    port = address.rpartition(":")[2]
    return add_port_to_grpc_server(server, f"127.0.0.1:{port}")  # type: ignore[no-untyped-call]
