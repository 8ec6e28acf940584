"""What crosses the wire to a coordinator's drafters, by group: all that their connections carry, whatever it is for.

A drafter is called over a connection of the coordinator's own process to where the actor listens, which Ray's head
knows. It is asked where a drafter that was leased has no open connection that is known: once for each, and anew when
it was restarted elsewhere.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from actors.messages import DrafterId
from actors.tcp_counts import Address, Carried, TcpConnection, grown

_MOST_ASKED = 8  # of the head in a look


class WireMeter:
    def __init__(
        self, where: Callable[[Any], Address | None], read: Callable[[], Mapping[TcpConnection, Carried]]
    ) -> None:
        """``where`` tells where a drafter's actor listens, and may wait; ``read`` this process's connections."""
        self._where, self._read = where, read
        self._used: dict[DrafterId, Any] = {}  # leased since it was last looked
        self._addresses: dict[DrafterId, Address] = {}
        self._before: dict[TcpConnection, Carried] = {}
        self._peers: frozenset[Address] = frozenset()  # of the last look

    def uses(self, drafter: DrafterId, handle: Any) -> None:
        """A drafter was leased, and will be called by this handle."""
        self._used[drafter] = handle

    def look(self) -> dict[str, Carried]:
        """What was carried since the last look, by drafter group.

        A connection whose drafter is placed later is then counted from its beginning.
        """
        now = self._read()
        self._peers = frozenset(connection.peer for connection in now)
        groups = {address: drafter.group for drafter, address in self._addresses.items()}
        known = {connection: counted for connection, counted in now.items() if connection.peer in groups}
        carried: defaultdict[str, Carried] = defaultdict(Carried)
        for connection, since in grown(known, self._before).items():
            carried[groups[connection.peer]] += since
        self._before = known
        return dict(carried)

    def place(self) -> None:
        """Find out where drafters listen that have been leased. May wait for the head: not on an event loop."""
        asked = 0
        for drafter, handle in list(self._used.items()):
            if self._addresses.get(drafter) not in self._peers:
                if asked == _MOST_ASKED:
                    return  # the others next time
                asked += 1
                found = self._where(handle)
                if found is not None:
                    self._addresses[drafter] = found
            if self._used.get(drafter) is handle:
                del self._used[drafter]
