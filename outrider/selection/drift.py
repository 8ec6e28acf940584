"""Detect that a decision head rejects another share than in calibration: a sequential test, valid after any mismatch.

Calibration says between which two shares of mismatches are rejected, whatever the link. Against the likeliest share
between them stands a mixture of all shares (uniform). While mismatches are rejected independently and with one of the
calibrated shares, the mixture's likelihood over that share's is a martingale, and over the likeliest's at most as much:
it ever reaches ``1 / false_alarms`` with a probability of at most ``false_alarms``, however often it is looked at
(Ville's inequality; Robbins 1970). Mismatches of one response resemble each other: few of each are to be shown to it.
"""

from math import inf, lgamma, log


class RejectionDrift:
    """Of one head's answers, all drafters of its model together. Mutable.

    Attributes:
        alarmed: it has drifted; it stays so.
    """

    def __init__(self, low: float, high: float, *, false_alarms: float = 0.01, least_judged: int = 200) -> None:
        """Nothing is judged yet.

        Args:
            low: share of mismatches that are rejected, at least, where nothing has changed.
            high: at most.
            false_alarms: probability that it ever says so although nothing has changed.
            least_judged: mismatches before which it says nothing.
        """
        self._low, self._high = low, high
        self._limit, self._least = -log(false_alarms), least_judged
        self.rejected = self.judged = 0
        self.alarmed = False

    def observe(self, rejected: int, judged: int) -> None:
        """So many mismatches were judged, and of these rejected."""
        self.rejected += rejected
        self.judged += judged
        self.alarmed = self.alarmed or (self.judged >= self._least and self.evidence >= self._limit)

    @property
    def evidence(self) -> float:
        """Natural logarithm of the mixture's likelihood over the largest of the shares calibrated."""
        k, n = self.rejected, self.judged
        if not n:
            return -inf
        likeliest = min(self._high, max(self._low, k / n))
        mixture = lgamma(k + 1) + lgamma(n - k + 1) - lgamma(n + 2)
        return mixture - _times_log(k, likeliest) - _times_log(n - k, 1.0 - likeliest)


def _times_log(count: int, share: float) -> float:
    """``count * log(share)``: 0 where there is nothing to explain, -inf where nothing can explain it."""
    if not count:
        return 0.0
    return count * log(share) if share > 0.0 else -inf
