"""How the devices of a group stop drafting: what they are told of each token, and the rule that goes by it.

The rules are the product's own (``outrider.drafting``). What is modelled is the predictor: not what a model says of a
row, but how well one can tell. A row has one feature, the probability that the predictor tells.
"""

from dataclasses import dataclass, field
from functools import cache
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Protocol

import numpy as np

from outrider.contracts.errors import ParameterError
from outrider.drafting.acceptance import ConfidenceLogistic
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import SendAndStop, StopBefore, StopRule
from outrider.simulation.acceptance_models import SimPredictor

_NORMAL = NormalDist()
_LEAST_LUCK = 1e-12
_EVEN = 0.5
_NO_ROW = np.ones(1)

UNCHANGED = ConfidenceLogistic()  # the product's predictor that takes confidence for acceptance


class SimFeatures(DraftFeatures):
    """Of a simulated row: its confidence is what the device is told; nothing else is modelled."""

    def __init__(self, acceptance: float) -> None:
        """``acceptance``: a probability."""
        super().__init__(_NO_ROW)
        self.confidence = acceptance


class SimulatedPredictor(Protocol):
    def predict(self, chance: float, luck: float, *, accepted: bool) -> float:
        """What it tells of a token.

        Args:
            chance: that a token at its depth is accepted.
            luck: uniform in [0, 1), the position's own.
            accepted: whether this one is, if those before it are.
        """
        ...

    def believed(self, chance: float, predicted: float) -> float:
        """The probability of acceptance of a token of which it told that."""
        ...


@dataclass(frozen=True, slots=True)
class Flags:
    """One that says yes or no, at WISP's or another operating point; what it tells is 1 or 0."""

    rates: SimPredictor

    def predict(self, chance: float, luck: float, *, accepted: bool) -> float:  # noqa: ARG002 (as others)
        return float(luck < (self.rates.recall if accepted else self.rates.false_positive_rate))

    def believed(self, chance: float, predicted: float) -> float:
        recall, false_rate = self.rates.recall, self.rates.false_positive_rate
        if predicted == 0.0:
            recall, false_rate = 1.0 - recall, 1.0 - false_rate
        joint = chance * recall
        total = joint + (1.0 - chance) * false_rate
        return joint / total if total > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One that tells a probability that is right, and as sharp as its AUC.

    Its signal is normal with a deviation of 1, and has another mean for tokens that are accepted than for those that
    are not. Then ``logit(predicted) = logit(chance) + d * signal`` is the probability of acceptance for a signal, and
    ``AUC = Phi(d / sqrt(2))``. At 0.5 it knows nothing and tells the chance.

    Raises:
        ParameterError: an AUC outside [0.5, 1).
    """

    auc: float

    def __post_init__(self) -> None:
        """Refuse what no such signal has."""
        if not _EVEN <= self.auc < 1.0:
            raise ParameterError("auc", "a number in [0.5, 1)", self.auc)

    def predict(self, chance: float, luck: float, *, accepted: bool) -> float:
        if not 0.0 < chance < 1.0:
            return chance
        apart = _apart(self.auc)
        signal = _NORMAL.inv_cdf(max(luck, _LEAST_LUCK)) + (apart if accepted else -apart) / 2.0
        return _probability(_logit(chance) + apart * signal)

    def believed(self, chance: float, predicted: float) -> float:  # noqa: ARG002 (as others)
        return predicted

    def threshold(self, chance: float, recall: float) -> float:
        """Of what is told, where such a share of accepted tokens is above it; chance in (0, 1)."""
        apart = _apart(self.auc)
        return _probability(_logit(chance) + apart * (apart / 2.0 - _NORMAL.inv_cdf(recall)))


@dataclass(frozen=True, slots=True)
class SimStopSetting:
    """Attributes: ``rule`` of None drafts while it pays, at the price of each order."""

    foreteller: SimulatedPredictor
    rule: StopRule | None = field(default=None)


def flagging(rates: SimPredictor) -> SimStopSetting:
    """As WISP's devices stop."""
    rule = SendAndStop if rates.sends_flagged else StopBefore
    return SimStopSetting(Flags(rates), rule(UNCHANGED, _EVEN))


@cache
def _apart(auc: float) -> float:
    return sqrt(2.0) * _NORMAL.inv_cdf(auc)


def _logit(chance: float) -> float:
    return log(chance / (1.0 - chance))


def _probability(logit: float) -> float:
    weight = exp(-abs(logit))
    return (1.0 if logit >= 0.0 else weight) / (1.0 + weight)
