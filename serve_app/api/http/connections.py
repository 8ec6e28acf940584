"""Who is connected to one listener: how many, from where, and who gives way to whom.

A connection is *silent* while it has no whole request head to be answered, whether it is idle between two requests,
whose answers its client has taken, or slow to send one. Silent connections give way to new ones, the oldest first;
those that are answered never do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from serve_app.api.peer import LOOPBACK, is_trusted, network_of


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of all connections to a listener.

    Attributes:
        reader_s: for which a client may take no byte of a response that waits for it.
        shared: networks of peers that many clients come through, such as proxies: not bounded by address.
    """

    reader_s: float = 60.0
    shared: tuple[str, ...] = LOOPBACK


class HttpConnection(Protocol):
    def give_way(self) -> None: ...


@dataclass(slots=True)
class _Peer:
    connected: int = 0
    silent: dict[HttpConnection, None] = field(default_factory=dict)  # the oldest first


class HttpConnections:
    """All there are. Every method takes constant time."""

    most = 4096
    most_by_address = 64

    def __init__(
        self,
        limits: Callable[[], ConnectionLimits] = ConnectionLimits,
        cut: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``limits`` are asked for each time; ``cut`` is told why a connection was ended: reader, head, body, full."""
        self._limits, self.note_cut = limits, cut
        self._of: dict[HttpConnection, str] = {}  # whose it is
        self._peers: dict[str, _Peer] = {}
        self._silent: dict[HttpConnection, None] = {}  # the oldest first

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits()

    def open(self, connection: HttpConnection, address: str) -> bool:
        """A new one, which is silent; whether there is room for it."""
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
        """It has been answered, and has taken the answer."""
        self.spoke(connection)
        if (name := self._of.get(connection)) is not None:
            self._silent[connection] = self._peers[name].silent[connection] = None

    def spoke(self, connection: HttpConnection) -> None:
        """It has sent a request's head."""
        if self._silent.pop(connection, self) is None:
            del self._peers[self._of[connection]].silent[connection]

    def close(self, connection: HttpConnection) -> None:
        """It has ended; one that was not let in is no matter of this."""
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
