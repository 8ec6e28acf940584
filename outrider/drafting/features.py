"""The four features of a draft model's next-token distribution that WISP's rejection predictor uses.

They are of the distribution that is sampled from, after temperature, truncation and rounding, and are computed before
the draw. So a stop rule that gets only these cannot depend on the token.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from outrider.sampling.distributions import Probs

FEATURE_NAMES = ("confidence", "entropy_nats", "margin", "logit_std")  # in the order of ``DraftFeatures.vector``


class DraftFeatures:
    """Features of one row, each computed on first use: over a whole vocabulary they take a good part of a step."""

    def __init__(self, probs: Probs) -> None:
        """Take ``probs``: ``[n]`` float64 that sum to 1; 0 for tokens that cannot be drawn."""
        self._probs = probs

    @cached_property
    def confidence(self) -> float:
        return float(self._probs.max())

    @cached_property
    def margin(self) -> float:
        if self._probs.size < 2:
            return self.confidence
        best = int(self._probs.argmax())  # argmax and two maxima take a fifth of the time of a partition
        before, behind = self._probs[:best], self._probs[best + 1 :]
        return self.confidence - float(max(before.max(initial=0.0), behind.max(initial=0.0)))

    @cached_property
    def entropy_nats(self) -> float:
        return max(0.0, -float(self._possible @ self._logits))

    @cached_property
    def logit_std(self) -> float:
        """Standard deviation (of a population) of the logits of all tokens that can be drawn."""
        return float(self._logits.std())

    @property
    def vector(self) -> Probs:
        """All features, ``[4]``, in the order of ``FEATURE_NAMES``."""
        return np.array([self.confidence, self.entropy_nats, self.margin, self.logit_std])

    @cached_property
    def _possible(self) -> Probs:
        return self._probs[self._probs > 0.0]

    @cached_property
    def _logits(self) -> Probs:
        """Logits up to a constant, on which no feature depends."""
        logits: Probs = np.log(self._possible)
        return logits


class LazyFeatures(DraftFeatures):
    def __init__(self, row: Callable[[], Probs]) -> None:
        self._row = row

    @cached_property
    def _probs(self) -> Probs:  # type: ignore[override]  # once
        return self._row()
