"""Where devices dial a gateway, and where they dial from."""

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from outrider.config.gateway import GatewayConfig

_ELSEWHERE = ("192.0.2.1", 9)  # for documentation (RFC 5737)


def dialled_address(config: GatewayConfig, port: int) -> str:
    """Return host:port that devices are told to dial: the configured one, else this machine's."""
    named = config.address or outward_address()
    host, colon, last = named.rpartition(":")
    if colon and last.isdecimal() and (":" not in host or host.endswith("]")):
        return named
    return f"[{named}]:{port}" if ":" in named and not named.startswith("[") else f"{named}:{port}"


def outward_address() -> str:
    """Return this machine's address on the way to others; loopback without one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def is_within(peer: str, networks: Iterable[str]) -> bool:
    """Return whether a connection comes from one of these addresses or networks."""
    address = _address_of(peer)
    return address is not None and any(address in ip_network(network, strict=False) for network in networks)


def network_of(peer: str) -> str:
    """Return what counts as one address: of IPv6 the /64, all of which one host may have."""
    address = _address_of(peer)
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)


def _address_of(peer: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
