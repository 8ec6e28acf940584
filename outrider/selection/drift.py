"""Whether a judge still rejects as often as where it was calibrated: a test that may be looked at after every mismatch.

The share of rejected mismatches is known from calibration. Against it stands a mixture of all other shares (uniform),
whose likelihood over the known share's is a martingale while nothing has changed: it ever reaches ``1 / false_alarms``
with a probability of at most ``false_alarms``, however often it is looked at (Ville's inequality; Robbins 1970).
"""

from math import inf, lgamma, log

_LEAST_SHARE = 1e-3  # a calibration of thousands cannot tell less


class RejectionDrift:
    """Of one head's answers, all drafters of its model together. Mutable.

    Attributes:
        alarmed: it has drifted; it stays so.
    """

    def __init__(self, expected_share: float, *, false_alarms: float = 0.01, least_judged: int = 200) -> None:
        """Nothing is judged yet.

        Args:
            expected_share: of mismatches that were rejected in calibration.
            false_alarms: probability that it ever says so although nothing has changed.
            least_judged: mismatches before which it says nothing.
        """
        self._share = min(1.0 - _LEAST_SHARE, max(_LEAST_SHARE, expected_share))
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
        """Natural logarithm of the mixture's likelihood over that of the expected share."""
        k, n = self.rejected, self.judged
        if not n:
            return -inf
        mixture = lgamma(k + 1) + lgamma(n - k + 1) - lgamma(n + 2)
        return mixture - k * log(self._share) - (n - k) * log(1.0 - self._share)
