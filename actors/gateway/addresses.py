"""Where devices dial a gateway."""

import socket

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
