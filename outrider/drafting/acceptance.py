"""Acceptance predictors: the probability that a draft token will be accepted, given before it is drawn."""

from dataclasses import dataclass
from math import exp, log
from typing import Protocol

from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import DraftFeatures

# Rules of acceptance that predictors exist for: those of chains, without a judge.
PREDICTED_RULES = (AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE, AcceptanceRule.RATIO)
_LEAST = 1e-12  # confidence stays this far inside (0, 1), so that its logit exists


class AcceptancePredictor(Protocol):
    def probability(self, features: DraftFeatures) -> float:
        """Return P(accepted) of a token to be drawn from a row with these features, if those before it are accepted."""


@dataclass(frozen=True, slots=True)
class ConfidenceLogistic:
    """A logistic regression on the logit of the confidence alone: ``sigmoid(bias + weight * logit(max q))``.

    The defaults give the confidence itself.
    """

    weight: float = 1.0
    bias: float = 0.0

    def probability(self, features: DraftFeatures) -> float:
        return sigmoid(self.bias + self.weight * confidence_logit(features.confidence))


def confidence_logit(confidence: float) -> float:
    """Return the logit of a probability; finite for 0 and 1 as well."""
    inside = min(max(confidence, _LEAST), 1.0 - _LEAST)
    return log(inside / (1.0 - inside))


def sigmoid(score: float) -> float:
    weight = exp(-abs(score))  # at most 1: no overflow for any score
    return (1.0 if score >= 0.0 else weight) / (1.0 + weight)
