"""Model the acceptance predictors of simulated devices; the stop rules are the product's (``outrider.drafting``).

A simulated predictor is described by its quality (error rates or AUC), not by a network on features of a row. A row has
one feature: the probability of acceptance that the predictor gives.
"""

from dataclasses import dataclass, field
from functools import cache
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Protocol

import numpy as np

from lab.simulation.acceptance_models import SimPredictor
from outrider.contracts.errors import ParameterError
from outrider.drafting.acceptance import ConfidenceLogistic
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import SendAndStop, StopBefore, StopRule

_NORMAL = NormalDist()
_LEAST_LUCK = 1e-12
_EVEN = 0.5
_NO_ROW = np.ones(1)

UNCHANGED = ConfidenceLogistic()  # the product's predictor that returns the confidence as probability of acceptance


class SimFeatures(DraftFeatures):
    """Features of a simulated row: the confidence is the predicted probability; nothing else is modelled."""

    def __init__(self, acceptance: float) -> None:
        super().__init__(_NO_ROW)
        self.confidence = acceptance


class SimulatedPredictor(Protocol):
    def predict(self, chance: float, luck: float, *, accepted: bool) -> float:
        """Predict a token's acceptance, in [0, 1].

        Args:
            chance: probability of acceptance at its depth.
            luck: uniform in [0, 1), fixed for the position.
            accepted: whether this token is accepted, if those before it are.
        """
        ...

    def believed(self, chance: float, predicted: float) -> float:
        """Return the probability of acceptance given the prediction (Bayes)."""
        ...


@dataclass(frozen=True, slots=True)
class Flags:
    """A predictor that says yes (1) or no (0), at WISP's or another operating point."""

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
    """A calibrated predictor with a given AUC (binormal model).

    Its signal is normal with a standard deviation of 1 and mean d/2 for accepted tokens, -d/2 for rejected ones. Then
    ``logit(predicted) = logit(chance) + d * signal`` is the probability of acceptance for a signal, and ``AUC = Phi(d /
    sqrt(2))``. At an AUC of 0.5 it predicts ``chance``.

    Raises:
        ParameterError: an AUC outside [0.5, 1).
    """

    auc: float

    def __post_init__(self) -> None:
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
        """Return the prediction above which the share ``recall`` of accepted tokens lies; chance in (0, 1)."""
        apart = _apart(self.auc)
        return _probability(_logit(chance) + apart * (apart / 2.0 - _NORMAL.inv_cdf(recall)))


@dataclass(frozen=True, slots=True)
class SimStopSetting:
    """A predictor and a stop rule. A ``rule`` of None drafts while it pays, at the price of each order."""

    foreteller: SimulatedPredictor
    rule: StopRule | None = field(default=None)


def flagging(rates: SimPredictor) -> SimStopSetting:
    """Return the setting of WISP's devices: stop at the first flagged token, sent or withheld."""
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
