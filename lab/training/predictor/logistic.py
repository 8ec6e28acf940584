"""Logistic regressions: on all features, on the confidence alone and online, and Platt's.

Platt scaling turns any score into a probability: a logistic regression on the score, on tokens that the score was not
fitted to, with targets slightly inside 0 and 1 (Platt 1999). It keeps the order of scores.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from lab.training.predictor.drafted import Floats, Ints
from outrider.contracts.exchanged import ArrayData
from outrider.drafting.acceptance import ConfidenceLogistic, confidence_logit

_RIDGE = 1e-4  # on weights of standardised inputs, so that separable data has a fit
_RATE = 0.5  # of the online fit: first step in each parameter
_LEAST_SHARE = 1e-4  # probabilities are clipped this far inside (0, 1) before their logit


@dataclass(frozen=True, slots=True, eq=False)
class Logistic(ArrayData):
    """``sigmoid(bias + inputs @ weights)``."""

    weights: Floats  # ``[d]``
    bias: float

    def scores(self, inputs: Floats) -> Floats:
        """``[N]`` logits of ``[N, d]``."""
        scores: Floats = inputs @ self.weights + self.bias
        return scores


def fit_logistic(inputs: Floats, targets: Floats, *, least_weight: float | None = None) -> Logistic:
    """Maximum likelihood fit of ``[N]`` targets in 0..1 on ``[N, d]``, with a slight ridge penalty."""
    mean, deviation = inputs.mean(0), np.maximum(inputs.std(0), 1e-9)
    x = (inputs - mean) / deviation

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, scores = parameters[:-1], x @ parameters[:-1] + parameters[-1]
        value = np.logaddexp(0.0, scores) - targets * scores
        gap = (expit(scores) - targets) / len(targets)
        gradient = np.append(x.T @ gap + _RIDGE * weights, gap.sum())
        return float(value.mean() + 0.5 * _RIDGE * weights @ weights), gradient

    bounds = [(least_weight, None)] * x.shape[1] + [(None, None)]
    found: Floats = minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = found[:-1] / deviation
    return Logistic(weights, float(found[-1] - weights @ mean))


@dataclass(frozen=True, slots=True)
class Platt:
    """``sigmoid(slope * score + offset)``."""

    slope: float  # not negative: it keeps the order
    offset: float

    def probs(self, scores: Floats) -> Floats:
        """``[N]``."""
        probs: Floats = expit(self.slope * scores + self.offset)
        return probs


def fit_platt(scores: Floats, accepted: Ints) -> Platt:
    ones = int(accepted.sum())
    targets = np.where(accepted == 1, (ones + 1.0) / (ones + 2.0), 1.0 / (len(accepted) - ones + 2.0))
    found = fit_logistic(scores[:, None], targets, least_weight=0.0)
    return Platt(float(found.weights[0]), found.bias)


def logits(probs: Floats) -> Floats:
    """Logits of probabilities, clipped to be finite."""
    inside = np.clip(probs, _LEAST_SHARE, 1.0 - _LEAST_SHARE)
    scores: Floats = np.log(inside) - np.log1p(-inside)
    return scores


def learn_online(confidences: Floats, accepted: Ints) -> ConfidenceLogistic:
    """Fit a logistic on the confidence's logit online, each token once.

    A device or a verifier could learn it so in service: one gradient step per token, of a size that falls with the past
    steps in that parameter (AdaGrad). It starts at the confidence itself.
    """
    weight, bias = 1.0, 0.0
    moved_weight = moved_bias = 1.0
    for confidence, label in zip(confidences.tolist(), accepted.tolist(), strict=True):
        x = confidence_logit(confidence)
        gap = float(expit(weight * x + bias)) - label
        moved_weight += (gap * x) ** 2
        moved_bias += gap**2
        weight -= _RATE * gap * x / moved_weight**0.5
        bias -= _RATE * gap / moved_bias**0.5
    return ConfidenceLogistic(weight, bias)
