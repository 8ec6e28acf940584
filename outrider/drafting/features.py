"""The four features of a draft model's next-token distribution that WISP's rejection predictor uses.

Of the distribution that is sampled from, with temperature, truncation and rounding, and before anything is drawn. A
rule that is told no more than this cannot see the token.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from outrider.sampling.distributions import Probs

FEATURE_NAMES = ("confidence", "entropy_nats", "margin", "logit_std")  # in the order of ``DraftFeatures.vector``


class DraftFeatures:
    """Of one row. Each is computed when it is first asked for: over a vocabulary they take a good part of a step."""

    def __init__(self, probs: Probs) -> None:
        """``probs``: ``[n]`` float64 that sum to 1; 0 for tokens that cannot be drawn."""
        self._probs = probs

    @cached_property
    def confidence(self) -> float:
        return float(self._probs.max())

    @cached_property
    def margin(self) -> float:
        """The largest probability less the second largest."""
        if self._probs.size < 2:
            return self.confidence
        best = int(self._probs.argmax())  # a fifth of what a partition takes
        before, behind = self._probs[:best], self._probs[best + 1 :]
        return self.confidence - float(max(before.max(initial=0.0), behind.max(initial=0.0)))

    @cached_property
    def entropy_nats(self) -> float:
        return max(0.0, -float(self._possible @ self._logits))

    @cached_property
    def logit_std(self) -> float:
        """Standard deviation of the logits, as a whole population, of the tokens that can be drawn."""
        return float(self._logits.std())

    @property
    def vector(self) -> Probs:
        """``[4]``: all of them, in the order of ``FEATURE_NAMES``."""
        return np.array([self.confidence, self.entropy_nats, self.margin, self.logit_std])

    @cached_property
    def _possible(self) -> Probs:
        return self._probs[self._probs > 0.0]

    @cached_property
    def _logits(self) -> Probs:
        """Up to a constant, which none of the features depends on."""
        logits: Probs = np.log(self._possible)
        return logits


class LazyFeatures(DraftFeatures):
    """Of a row that is worked out when it is first asked for, by whoever asks."""

    def __init__(self, row: Callable[[], Probs]) -> None:
        """``row``: gives what ``DraftFeatures`` takes."""
        self._row = row

    @cached_property
    def _probs(self) -> Probs:  # type: ignore[override]  # once
        return self._row()
