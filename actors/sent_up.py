"""What devices send up, and have to send again: each counts its own, and the fleet adds up what they say.

Nobody else knows it: what is lost on the way up is told to the device's own kernel alone. A device may say what it
likes, so its word is bounded, shown as its word, and nothing is decided by it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from actors.messages import DrafterId, SentSegments
from actors.tcp_counts import Carried, TcpConnection, grown

_MOST_PER_S = 100_000  # segments: full ones of more than a gigabit a second


class SentMeter:
    """Of one drafter's process: all that it has sent to who called it."""

    def __init__(self, read: Callable[[], Mapping[TcpConnection, Carried]]) -> None:
        """``read`` tells the connections that others have opened to this process."""
        self._read = read
        self._before: Mapping[TcpConnection, Carried] = {}
        self._sent = SentSegments()

    def look(self) -> SentSegments:
        """Until now; without what a connection that is closed has sent since the last look."""
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
    """What drafters have sent since the fleet first asked each of them, by their own word."""

    def __init__(self) -> None:
        self._words: dict[DrafterId, _SegmentReport] = {}
        self._groups: defaultdict[str, SentSegments] = defaultdict(SentSegments)

    @property
    def groups(self) -> Mapping[str, SentSegments]:
        """By drafter group; it only grows."""
        return self._groups

    def hear(self, drafter: DrafterId, said: SentSegments, now_s: float) -> None:
        """It says to have sent so much since it began.

        Less than before is a new process's word, and more than any link carries is none: from there on it is counted.
        """
        if not all(type(count) is int and count >= 0 for count in said):
            return
        before, self._words[drafter] = self._words.get(drafter), _SegmentReport(said, now_s)
        if before is None:
            return
        segments, resent = said.segments - before.said.segments, said.resent - before.said.resent
        if resent >= 0 and 0 <= segments <= _MOST_PER_S * (now_s - before.at_s):
            known = self._groups[drafter.group]
            self._groups[drafter.group] = SentSegments(known.segments + segments, known.resent + min(resent, segments))

    def forget(self, drafter: DrafterId) -> None:
        """It is not asked any more."""
        self._words.pop(drafter, None)
