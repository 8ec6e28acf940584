"""What this process's TCP connections have carried, as the kernel counts it: everything that was on the wire.

Ray says neither how large its calls are nor whether anything of them was lost, but they cross TCP connections of the
process that calls, and Linux counts each one's bytes and segments (``TCP_INFO``). So what is read here is what was
sent, by whomever and in however many wrappings, with the headers of TCP and IP; what is below IP is not.

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
_TIMESTAMPS = 1  # among the options
_TCP_BYTES, _TIMESTAMP_BYTES, _IP_BYTES = 20, 12, {4: 20, 6: 40}

Address = tuple[str, int]  # numeric, without a zone; IPv4 as such, also where a socket writes it as IPv6


@dataclass(frozen=True, slots=True)
class Carried:
    """By one connection since it was opened, or in a while.

    Attributes:
        sent_bytes: of IP packets, headers and what was sent again included; likewise ``received_bytes``, without what
            arrived twice.
        sent_segments: of TCP, that carried something.
        resent_segments: of these, sent again, as the other end had not confirmed them in time. What is lost the other
            way is known to the other end alone.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_segments: int = 0
    resent_segments: int = 0

    def __add__(self, other: "Carried") -> "Carried":
        return Carried(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def since(self, before: "Carried") -> "Carried":
        """Of the same connection, from then to now."""
        return Carried(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A connection, by its two ends."""

    own: Address
    peer: Address


def carried(info: bytes, ip_version: int) -> Carried | None:
    """What a ``tcp_info`` says; None of a kernel that counts less than this needs (before Linux 4.19)."""
    if len(info) < _FIELDS.size:
        return None
    options, resent, received, out, into, data_out, sent = _FIELDS.unpack_from(info)
    header = _IP_BYTES[ip_version] + _TCP_BYTES + (_TIMESTAMP_BYTES if options & _TIMESTAMPS else 0)
    return Carried(sent + out * header, received + into * header, data_out, resent)


def connections() -> dict[TcpConnection, Carried]:
    """All TCP connections of this process; none where there is no Linux below."""
    return _connections(_sockets())


def _connections(sockets: Iterable[int]) -> dict[TcpConnection, Carried]:
    found = {}
    for number in sockets:
        with suppress(OSError, ValueError):  # closed meanwhile, or no connection
            read = _read(number)
            if read is not None:
                found[read[0]] = read[1]
    return found


def answered() -> dict[TcpConnection, Carried]:
    """Of these, the connections that others have opened, to a port at which this process listens."""
    ports, sockets = set(), list(_sockets())
    for number in sockets:
        with suppress(OSError):
            ports.add(_listens(number))
    return {connection: counted for connection, counted in _connections(sockets).items() if connection.own[1] in ports}


def grown(
    now: Mapping[TcpConnection, Carried], before: Mapping[TcpConnection, Carried]
) -> dict[TcpConnection, Carried]:
    """What each connection has carried since then.

    One that counts less than before is another, between the same two ports, and is counted from its beginning.
    """
    found = {}
    for connection, counted in now.items():
        since = counted.since(before.get(connection, Carried()))
        found[connection] = counted if min(astuple(since)) < 0 else since
    return found


def _sockets() -> Iterator[int]:
    """Open files that are sockets."""
    files = list(_OPEN_FILES.iterdir()) if _OPEN_FILES.exists() else []
    for file in files:
        with suppress(OSError):
            if str(file.readlink()).startswith("socket:"):
                yield int(file.name)


def _listens(number: int) -> int | None:
    """The port of an open file, looked at likewise, at which TCP listens."""
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
    """Of an open file that somebody else owns and may close at any time: it is looked at, and left as it is.

    A copy of it would outlive that end for a moment, which gRPC's own waiting does not expect.
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
