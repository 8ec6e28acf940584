"""The address that a request comes from, for counts and limits by address.

``X-Forwarded-For`` is believed only as far as trusted proxies wrote it: anybody may send one.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

LOOPBACK = ("127.0.0.0/8", "::1/128")  # peers on this machine, such as a proxy
_MAX_HOPS = 16  # proxies in a row
_KEPT_ADDRESSES = 4096
_IPV6_BITS_OF_A_SITE = 64  # one host may use all addresses of such a network


def peer_address(scope: Scope, trusted_proxies: Sequence[str] = ()) -> str:
    """The client's address: the TCP peer's, or behind trusted proxies the nearest untrusted one that they report.

    Args:
        scope: of an ASGI request.
        trusted_proxies: addresses and networks, such as ``10.0.0.0/8``; as ``http.trusted_proxies``.

    Returns:
        An IPv4 address, an IPv6 network of 64 bits, or the server's name of its peer (``""``: none).
    """
    client = scope.get("client")
    peer = str(client[0]) if client else ""
    if not trusted_proxies:
        return network_of(peer)
    proxies = tuple(trusted_proxies)
    for hop in _forwarded_for(scope):
        if not is_trusted(peer, proxies) or _parsed(hop) is None:  # None: the proxy's own address is the last known
            break
        peer = hop
    return network_of(peer)


@lru_cache(_KEPT_ADDRESSES)
def is_trusted(address: str, trusted_proxies: tuple[str, ...]) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(
        parsed.version == network.version and parsed in network for network in networks_of(trusted_proxies)
    )


@lru_cache(16)
def networks_of(trusted_proxies: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse addresses and networks."""
    return tuple(ip_network(proxy, strict=False) for proxy in trusted_proxies)


def _forwarded_for(scope: Scope) -> list[str]:
    """The addresses that proxies have added, the nearest first."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    hops = [hop.strip() for value in values for hop in value.rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]]
    return [_without_port(hop) for hop in reversed(hops[-_MAX_HOPS:])]


def _without_port(hop: str) -> str:
    """Remove the port, which some proxies add: ``192.0.2.1:5000``, ``[2001:db8::1]:5000``."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


@lru_cache(_KEPT_ADDRESSES)
def network_of(address: str) -> str:
    """The unit that is counted: an IPv4 or loopback address, or the 64-bit network of an IPv6 address."""
    parsed = _parsed(address)
    if not isinstance(parsed, IPv6Address) or parsed.is_loopback:
        return address if parsed is None else str(parsed)
    return str(IPv6Network((int(parsed), _IPV6_BITS_OF_A_SITE), strict=False))


@lru_cache(_KEPT_ADDRESSES)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed
