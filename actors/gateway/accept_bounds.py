"""Bounds connections of which it is not known yet whether whoever opened them may dial: all, and those of one address.

An address has half of the rate at most, so that none takes it all. Proxies bring many devices each, and have no bound
of their own.
"""

from collections import Counter
from collections.abc import Sequence

from actors.gateway.addresses import is_within, network_of

ADMITTED_PER_S = 200.0
_OF_ADDRESS_PER_S = ADMITTED_PER_S / 2
_MOST_UNKNOWN, _MOST_OF_ADDRESS = 512, 64


class AcceptBounds:
    """Pure: ``now_s`` is monotonic."""

    def __init__(self, proxies: Sequence[str]) -> None:
        self._proxies = tuple(proxies)
        self._unknown, self._accepted = Counter[str](), Counter[str]()  # the latter since ``_second_at_s``
        self._second_at_s = 0.0

    def take(self, peer: str, now_s: float) -> bool:
        """Return whether another connection of this address may be accepted, and count it if so."""
        if now_s - self._second_at_s >= 1.0:
            self._accepted.clear()
            self._second_at_s = now_s
        network = network_of(peer)
        is_full = self._unknown[network] >= _MOST_OF_ADDRESS or self._accepted[network] >= _OF_ADDRESS_PER_S
        if self._unknown.total() >= _MOST_UNKNOWN or (is_full and not is_within(peer, self._proxies)):
            return False
        self._unknown[network] += 1
        self._accepted[network] += 1
        return True

    def give_back(self, peer: str) -> None:
        """Count a connection no more: it has ended, or whose it is is known."""
        self._unknown[network_of(peer)] -= 1
        self._unknown += Counter()  # without what is 0
