"""Test whether a judge still rejects mismatches as often as at calibration; valid after every mismatch (sequential).

Calibration gives the interval of the share of mismatches that are rejected. The test compares the likelihood of a
uniform mixture of all shares with that of the most likely share in the interval. If mismatches are rejected
independently with a share in the interval, the ratio to that share's likelihood is a martingale, and the ratio to the
most likely one is at most as large. So it ever reaches ``1 / false_alarms`` with a probability of at most
``false_alarms``, however often it is checked (Ville's inequality; Robbins 1970). Mismatches of one response are alike,
so callers should observe only a few of each response.
"""

from math import inf, lgamma, log


class RejectionDrift:
    """Drift test of one decision head, over all drafters of its model. Mutable."""

    def __init__(self, low: float, high: float, *, false_alarms: float = 0.01, least_judged: int = 200) -> None:
        """Begin without observations.

        Args:
            low: lower end of the calibrated share of mismatches that are rejected.
            high: upper end.
            false_alarms: bound on the probability that it ever alarms without a change.
            least_judged: number of mismatches before the first possible alarm.
        """
        self._low, self._high = low, high
        self._limit, self._least = -log(false_alarms), least_judged
        self.rejected = self.judged = 0
        self.alarmed = False  # whether it has drifted; never reset

    def observe(self, rejected: int, judged: int) -> None:
        """Add mismatches that were judged, and how many of them were rejected."""
        self.rejected += rejected
        self.judged += judged
        self.alarmed = self.alarmed or (self.judged >= self._least and self.evidence >= self._limit)

    @property
    def evidence(self) -> float:
        """Natural logarithm of the mixture's likelihood over the largest likelihood in the calibrated interval."""
        k, n = self.rejected, self.judged
        if not n:
            return -inf
        likeliest = min(self._high, max(self._low, k / n))
        mixture = lgamma(k + 1) + lgamma(n - k + 1) - lgamma(n + 2)  # log of the Beta integral of s^k (1 - s)^(n - k)
        return mixture - _times_log(k, likeliest) - _times_log(n - k, 1.0 - likeliest)


def _times_log(count: int, share: float) -> float:
    if not count:
        return 0.0
    return count * log(share) if share > 0.0 else -inf
