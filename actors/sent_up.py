"""Counts TCP segments that devices send and resend on the uplink: each device counts, the fleet adds up by group.

Only the device's kernel knows what was lost on the uplink. As a device may report anything, the fleet bounds its
counts, shows them as the device's claim, and decides nothing by them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from actors.messages import DrafterId
from actors.tcp_counts import Carried, TcpConnection, grown
from outrider.wire.replies import SentSegments

_MOST_PER_S = 100_000  # plausible segments: full ones at this rate are more than 1 Gbit/s


class SentMeter:
    """Segments that one drafter's process has sent to its callers."""

    def __init__(self, read: Callable[[], Mapping[TcpConnection, Carried]]) -> None:
        """``read`` returns the connections that others have opened to this process."""
        self._read = read
        self._before: Mapping[TcpConnection, Carried] = {}
        self._sent = SentSegments()

    def look(self) -> SentSegments:
        """Return the sum so far, without what a connection sent between the last call and its close."""
        now = self._read()
        for each in grown(now, self._before).values():
            self._sent = SentSegments(
                self._sent.segments + each.sent_segments, self._sent.resent + each.resent_segments
            )
        self._before = now
        return self._sent


@dataclass(frozen=True, slots=True)
class _SegmentReport:
    said: SentSegments
    at_s: float


class FleetSegments:
    """Segments that drafters say they have sent since the fleet first asked each of them."""

    def __init__(self) -> None:
        self._words: dict[DrafterId, _SegmentReport] = {}
        self._groups: defaultdict[str, SentSegments] = defaultdict(SentSegments)

    @property
    def groups(self) -> Mapping[str, SentSegments]:
        """Sums by drafter group, which never decrease."""
        return self._groups

    def hear(self, drafter: DrafterId, said: SentSegments, now_s: float) -> None:
        """Take in a drafter's claim of what it has sent since its start.

        A smaller count than before is that of a new process, and a larger one than any link carries is false: neither
        is added, and differences are counted from it on.
        """
        before, self._words[drafter] = self._words.get(drafter), _SegmentReport(said, now_s)
        if before is None:
            return
        segments, resent = said.segments - before.said.segments, said.resent - before.said.resent
        if resent >= 0 and 0 <= segments <= _MOST_PER_S * (now_s - before.at_s):
            known = self._groups[drafter.group]
            self._groups[drafter.group] = SentSegments(known.segments + segments, known.resent + min(resent, segments))

    def forget(self, drafter: DrafterId) -> None:
        """Drop a drafter that is no longer asked; its group's sums stay."""
        self._words.pop(drafter, None)
