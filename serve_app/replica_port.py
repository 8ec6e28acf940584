"""Makes Serve's replicas on a loopback node listen for each other's calls on 127.0.0.1 only (a work-around)."""

from ipaddress import ip_address

from ray.util import get_node_ip_address

from actors.ray_internals.serve import listen_on_loopback


def listen_where_the_node_does() -> None:
    """Listen on 127.0.0.1 only if the node's address is a loopback one; call it in a deployment's constructor.

    Ray's own ports follow the node's address, but Serve's replicas listen on all addresses, by a constant in its code.
    """
    node = get_node_ip_address()  # type: ignore[no-untyped-call]
    if ip_address(node).is_loopback:
        listen_on_loopback()
