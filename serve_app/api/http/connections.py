"""Connections of one listener: their number, their peers, and which are closed for new ones.

A connection is *silent* while it has no complete request head to be answered: it is idle between two requests and its
client has taken all answers, or its client is slow to send a head. Silent connections are closed for new ones, oldest
first; connections that are being answered never are.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from serve_app.api.peer import LOOPBACK, is_trusted, network_of


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of all connections of a listener.

    Attributes:
        reader_s: seconds after which a client that takes no byte of its pending response is cut off.
        shared: networks of peers that carry many clients, such as proxies: not bounded by address.
    """

    reader_s: float = 60.0
    shared: tuple[str, ...] = LOOPBACK


class HttpConnection(Protocol):
    def give_way(self) -> None: ...


@dataclass(slots=True)
class _Peer:
    connected: int = 0
    silent: dict[HttpConnection, None] = field(default_factory=dict)  # oldest first


class HttpConnections:
    """All connections of a listener. Every method takes constant time."""

    most = 4096
    most_by_address = 64

    def __init__(
        self,
        limits: Callable[[], ConnectionLimits] = ConnectionLimits,
        cut: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``limits`` is called each time; ``cut`` gets the reason of each forced end: reader, head, body or full."""
        self._limits, self.note_cut = limits, cut
        self._of: dict[HttpConnection, str] = {}  # connection to peer
        self._peers: dict[str, _Peer] = {}
        self._silent: dict[HttpConnection, None] = {}  # oldest first

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits()

    def open(self, connection: HttpConnection, address: str) -> bool:
        """Add a new, silent connection; return whether there is room for it."""
        name = "" if is_trusted(address, self.limits.shared) else network_of(address)
        peer = self._peers.get(name)
        if name and peer is not None and peer.connected >= self.most_by_address and not self._make_room(peer.silent):
            return False
        if len(self._of) >= self.most and not self._make_room(self._silent):
            return False
        self._of[connection] = name
        self._peers.setdefault(name, _Peer()).connected += 1
        self.fell_silent(connection)
        return True

    def fell_silent(self, connection: HttpConnection) -> None:
        """Note that it has been answered, and that its client has taken the answer."""
        self.spoke(connection)
        if (name := self._of.get(connection)) is not None:
            self._silent[connection] = self._peers[name].silent[connection] = None

    def spoke(self, connection: HttpConnection) -> None:
        """Note that it has sent a request's head."""
        if self._silent.pop(connection, self) is None:
            del self._peers[self._of[connection]].silent[connection]

    def close(self, connection: HttpConnection) -> None:
        """Remove an ended connection; ignore one that was not admitted."""
        self.spoke(connection)
        if (name := self._of.pop(connection, None)) is None:
            return
        peer = self._peers[name]
        peer.connected -= 1
        if not peer.connected:
            del self._peers[name]

    def _make_room(self, silent: dict[HttpConnection, None]) -> bool:
        if not silent:
            return False
        oldest = next(iter(silent))
        self.close(oldest)
        oldest.give_way()
        return True
