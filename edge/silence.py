"""Tells a dead connection from a quiet one: soon while calls come, and by the gateway's pings while none do. Pure.

A device does not know of a call that does not reach it. So it pings when the next call is late by its usual pace; where
nothing answers within a few round trips the network may have given it another address. ``now_s`` is monotonic.
"""

_ACTIVE_S = 5.0  # since the last call
_LEAST_LATE_S, _LEAST_ANSWER_S = 0.1, 0.2
_LATE, _LATER = 1.25, 0.5  # times the usual pause between calls; times the pause so far, so that pings get rarer
_ROUND_TRIPS = 3.0  # for an answer to a ping; a slow link has long ones
_WEIGHT = 0.2  # of the newest pause
_DIAL_ROUND_TRIPS, _LEAST_DIAL_S = 10.0, 1.0


class LinkSilence:
    def __init__(self, idle_s: float, rtt_s: float) -> None:
        """``idle_s`` is the silence after which the connection is dead in any case; ``rtt_s`` a first estimate."""
        self._idle_s, self._rtt_s = idle_s, rtt_s
        self._heard_at_s = self._called_at_s = self._pinged_at_s = float("-inf")
        self._usual_s = 0.0

    @property
    def dial_s(self) -> float:
        """How long a dial may take by what is known of the link."""
        return max(_LEAST_DIAL_S, _DIAL_ROUND_TRIPS * self._rtt_s)

    def heard(self, now_s: float) -> None:
        self._heard_at_s = max(self._heard_at_s, now_s)

    def called(self, now_s: float) -> None:
        if self._is_active(now_s):  # a longer pause says nothing of the pace, nor does the first call of a connection
            self._usual_s += _WEIGHT * (now_s - self._called_at_s - self._usual_s)
        self._called_at_s = now_s

    def pinged(self, now_s: float) -> None:
        self._pinged_at_s = now_s

    def ponged(self, rtt_s: float) -> None:
        self._rtt_s = max(rtt_s, self._rtt_s / 2.0)

    def is_dead(self, now_s: float) -> bool:
        return now_s - self._heard_at_s >= self._idle_s

    def is_unanswered(self, now_s: float) -> bool:
        """Return whether a ping should have been answered by now."""
        return self._is_waiting and now_s - self._pinged_at_s >= self._answer_s

    def is_late(self, now_s: float) -> bool:
        """Return whether a call is late, so that a ping is due."""
        return self._is_active(now_s) and not self._is_waiting and now_s - self._heard_at_s >= self._late_s

    def left_s(self, now_s: float) -> float:
        """Return after what time to look again if nothing is heard."""
        dead_s = self._heard_at_s + self._idle_s - now_s
        if self._is_waiting:
            soon_s = self._pinged_at_s + self._answer_s - now_s
            return min(dead_s, soon_s if soon_s > 0 else self._answer_s)
        return min(dead_s, self._heard_at_s + self._late_s - now_s) if self._is_active(now_s) else dead_s

    @property
    def _is_waiting(self) -> bool:
        return self._pinged_at_s > self._heard_at_s

    @property
    def _answer_s(self) -> float:
        return max(_LEAST_ANSWER_S, _ROUND_TRIPS * self._rtt_s)

    @property
    def _late_s(self) -> float:
        return max(_LEAST_LATE_S, _LATE * self._usual_s, _LATER * (self._heard_at_s - self._called_at_s))

    def _is_active(self, now_s: float) -> bool:
        return now_s - self._called_at_s < _ACTIVE_S
