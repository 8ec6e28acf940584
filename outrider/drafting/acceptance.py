"""Predict the probability that a draft token will be accepted, before it is drawn."""

from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Protocol

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import DraftFeatures

# Of chains, and nobody judges: what there are predictors for.
PREDICTED_RULES = (AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE, AcceptanceRule.RATIO)
_LEAST = 1e-12  # confidence stays this far inside (0, 1), so that its logit exists


class AcceptancePredictor(Protocol):
    def probability(self, features: DraftFeatures) -> float:
        """That the token drawn from a row with these features is accepted, given that those before it are."""
        ...


@dataclass(frozen=True, slots=True)
class ConfidenceLogistic:
    """A logistic regression on the logit of the confidence alone: ``sigmoid(bias + weight * logit(max q))``.

    As it stands, the confidence itself: a token drawn from a one-hot row is taken for certain.

    Raises:
        ParameterError: a parameter that is not finite.
    """

    weight: float = 1.0
    bias: float = 0.0

    def __post_init__(self) -> None:
        """Refuse parameters no fit gives."""
        for name, value in (("weight", self.weight), ("bias", self.bias)):
            if not isfinite(value):
                raise ParameterError(name, "a finite number", value)

    def probability(self, features: DraftFeatures) -> float:
        return sigmoid(self.bias + self.weight * confidence_logit(features.confidence))


def confidence_logit(confidence: float) -> float:
    """Of a probability; finite for 0 and 1 as well."""
    inside = min(max(confidence, _LEAST), 1.0 - _LEAST)
    return log(inside / (1.0 - inside))


def sigmoid(score: float) -> float:
    """``1 / (1 + exp(-score))``, for any number."""
    weight = exp(-abs(score))
    return (1.0 if score >= 0.0 else weight) / (1.0 + weight)
