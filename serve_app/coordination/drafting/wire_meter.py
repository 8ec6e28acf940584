"""Measures what crosses the wire between a coordinator and its drafters, by group, whatever the traffic is for.

Ray calls a drafter over a connection of the coordinator's own process to the address where the actor listens, which
Ray's head knows. The head is asked when a leased drafter has no known open connection or stream: once for each drafter,
and again after it was restarted elsewhere. Where a drafter's stream goes to is known from who opened it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from actors.messages import DrafterId
from actors.tcp_counts import Address, Carried, TcpConnection, grown

_MOST_ASKED = 8  # questions to the head per call of ``place``


class WireMeter:
    def __init__(
        self, where: Callable[[Any], Address | None], read: Callable[[], Mapping[TcpConnection, Carried]]
    ) -> None:
        """``where`` returns where a drafter's actor listens, and may block; ``read``: this process's connections."""
        self._where, self._read = where, read
        self._used: dict[DrafterId, Any] = {}  # leased, and not handled by ``place`` yet
        self._addresses: dict[DrafterId, Address] = {}
        self._streams: dict[DrafterId, Address] = {}
        self._before: dict[TcpConnection, Carried] = {}
        self._peers: frozenset[Address] = frozenset()  # at the last ``look``

    def note_lease(self, drafter: DrafterId, handle: Any) -> None:
        """Note that a drafter was leased and is called by this handle. Called on the event loop."""
        self._used[drafter] = handle

    def note_stream(self, drafter: DrafterId, address: Address) -> None:
        """Note where a drafter's stream goes to. Called on the event loop."""
        if self._streams.get(drafter, address) != address:  # it was restarted
            self._addresses.pop(drafter, None)
        others = {
            known: place for known, place in self._streams.items() if place != address
        }  # it may be theirs no more
        self._streams = {**others, drafter: address}

    def look(self) -> dict[str, Carried]:
        """Return what was carried since the last call, by drafter group. Called in a thread, as is ``place``.

        A connection whose drafter's address is found later is then counted from its beginning.
        """
        now = self._read()
        self._peers = frozenset(connection.peer for connection in now)
        placed = *self._addresses.items(), *self._streams.items()
        groups = {address: drafter.group for drafter, address in placed}
        known = {connection: counted for connection, counted in now.items() if connection.peer in groups}
        carried: defaultdict[str, Carried] = defaultdict(Carried)
        for connection, since in grown(known, self._before).items():
            carried[groups[connection.peer]] += since
        self._before = known
        return dict(carried)

    def place(self) -> None:
        """Ask the head where leased drafters listen; it may not answer for long, so call this in a thread."""
        asked = 0
        for drafter, handle in list(self._used.items()):
            address = self._addresses.get(drafter)
            if address is None or self._peers.isdisjoint((address, self._streams.get(drafter))):
                if asked == _MOST_ASKED:
                    return
                asked += 1
                found = self._where(handle)
                if found is not None:
                    self._addresses[drafter] = found
            if self._used.get(drafter) is handle:  # else leased again meanwhile, by another handle
                del self._used[drafter]
