"""Reads what this process's TCP connections have carried, as the kernel counts it: wire bits and segments.

Ray reports neither the size of its calls nor losses, but they cross TCP connections of the calling process, and Linux
counts each connection's bytes and segments (``TCP_INFO``). The figures so include all protocol overhead of Ray and the
headers of TCP and IP, but nothing below IP.

Source: ``struct tcp_info`` of Linux's ``include/uapi/linux/tcp.h``, which only ever grows at its end.
"""

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from ipaddress import ip_address
from pathlib import Path

_OPEN_FILES = Path("/proc/self/fd")
_TCP_INFO = 11  # as ``socket.TCP_INFO``, which is not everywhere
_MOST_INFO_BYTES = 512
# options, segments sent again, bytes received, segments out and in, of those out with data, bytes sent
_FIELDS = struct.Struct("=5xB94xI24xQII12xI40xQ")
_ACKED = struct.Struct("=120xQ")
_TIMESTAMPS = 1  # among the options
_TCP_BYTES, _TIMESTAMP_BYTES, _IP_BYTES = 20, 12, {4: 20, 6: 40}

_MAPPED = "::ffff:"  # IPv4 of a socket of IPv6

Address = tuple[str, int]  # numeric, without a zone; IPv4 as such, also where a socket writes it as IPv6


@dataclass(frozen=True, slots=True)
class Carried:
    """Traffic of one connection, since it was opened or between two readings.

    Attributes:
        resent_segments: of the segments with data, those that were retransmitted. Losses of the other direction are
            known to the other end only.
    """

    sent_bytes: int = 0  # of IP packets, with headers and retransmissions; ``received_bytes`` are without duplicates
    received_bytes: int = 0
    sent_segments: int = 0  # TCP segments with data
    resent_segments: int = 0

    def __add__(self, other: "Carried") -> "Carried":
        return Carried(  # (``astuple`` copies, which at a thousand devices a second can be felt)
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
            self.sent_segments + other.sent_segments,
            self.resent_segments + other.resent_segments,
        )

    def since(self, before: "Carried") -> "Carried":
        """Return the traffic between two readings of the same connection."""
        return Carried(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


@dataclass(frozen=True, slots=True)
class TcpConnection:
    own: Address
    peer: Address


def carried(info: bytes, ip_version: int) -> Carried | None:
    """Decode a ``tcp_info``; None for kernels whose structure is too short (before Linux 4.19)."""
    if len(info) < _FIELDS.size:
        return None
    options, resent, received, out, into, data_out, sent = _FIELDS.unpack_from(info)
    header = _IP_BYTES[ip_version] + _TCP_BYTES + (_TIMESTAMP_BYTES if options & _TIMESTAMPS else 0)
    return Carried(sent + out * header, received + into * header, data_out, resent)


def connections() -> dict[TcpConnection, Carried]:
    """Return all TCP connections of this process; none on systems other than Linux."""
    return _connections(_sockets())


def _connections(sockets: Iterable[int]) -> dict[TcpConnection, Carried]:
    found = {}
    for number in sockets:
        with suppress(OSError, ValueError):  # closed meanwhile, or not connected
            read = _read(number)
            if read is not None:
                found[read[0]] = read[1]
    return found


def read_connection(number: int) -> Carried | None:
    """Return what a connection of the caller's has carried, by its open file; None if that cannot be told."""
    try:
        looked_at = socket.socket(fileno=number)
    except (OSError, ValueError):
        return None
    try:
        if looked_at.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        version = 4
        if looked_at.family is not socket.AF_INET:
            version = 4 if looked_at.getpeername()[0].startswith(_MAPPED) else 6
        return carried(looked_at.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _MOST_INFO_BYTES), version)
    except (OSError, ValueError):
        return None
    finally:
        looked_at.detach()


def acked_bytes(number: int) -> int:
    """Return how many bytes the other end's kernel has taken, of a connection by its open file; 0 if it cannot tell."""
    try:
        looked_at = socket.socket(fileno=number)
    except (OSError, ValueError):
        return 0
    try:
        info = looked_at.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _MOST_INFO_BYTES)
        acked: int = _ACKED.unpack_from(info)[0]
    except (OSError, struct.error):
        return 0
    finally:
        looked_at.detach()
    return acked


def answered() -> dict[TcpConnection, Carried]:
    """Return the connections that others have opened to a port at which this process listens."""
    ports, sockets = set(), list(_sockets())
    for number in sockets:
        with suppress(OSError):
            ports.add(_listens(number))
    return {connection: counted for connection, counted in _connections(sockets).items() if connection.own[1] in ports}


def grown(
    now: Mapping[TcpConnection, Carried], before: Mapping[TcpConnection, Carried]
) -> dict[TcpConnection, Carried]:
    """Return what each connection has carried since ``before``.

    One that counts less than before is a new connection between the same two ports, and is counted from its start.
    """
    found = {}
    for connection, counted in now.items():
        since = counted.since(before.get(connection, Carried()))
        found[connection] = counted if min(astuple(since)) < 0 else since
    return found


def _sockets() -> Iterator[int]:
    files = list(_OPEN_FILES.iterdir()) if _OPEN_FILES.exists() else []
    for file in files:
        with suppress(OSError):
            if str(file.readlink()).startswith("socket:"):
                yield int(file.name)


def _listens(number: int) -> int | None:
    """Return the port at which a socket listens, if it does; the file is borrowed as in ``_read``."""
    looked_at = socket.socket(fileno=number)
    try:
        if looked_at.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        listens = looked_at.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        port: int = looked_at.getsockname()[1]
        return port if listens else None
    finally:
        looked_at.detach()


def _read(number: int) -> tuple[TcpConnection, Carried] | None:
    """Read a connection by the number of an open file that other code owns and may close at any time.

    The number is borrowed and detached, not duplicated: a duplicate would outlive the owner's close for a moment, which
    gRPC's polling does not expect. The ends are read twice, as the number may be reused for another file in between.
    """
    looked_at = socket.socket(fileno=number)
    try:
        if looked_at.type is not socket.SOCK_STREAM or looked_at.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        ends = TcpConnection(_address(looked_at.getsockname()), _address(looked_at.getpeername()))
        counted = carried(
            looked_at.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _MOST_INFO_BYTES), ip_address(ends.peer[0]).version
        )
        same = ends == TcpConnection(_address(looked_at.getsockname()), _address(looked_at.getpeername()))
        return (ends, counted) if counted is not None and same else None
    finally:
        looked_at.detach()


def _address(raw: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    host = ip_address(raw[0].partition("%")[0])
    mapped = getattr(host, "ipv4_mapped", None)
    return str(mapped or host), raw[1]
