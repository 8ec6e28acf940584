"""Labels for a link: on a bad link some critical mismatches may pass, by importance (WISV eq. 28-31).

A link has a budget of repairs. The Lagrangian of maximising the importance repaired within it is separable: a critical
mismatch is repaired with probability ``sigmoid((importance - price) / temperature)``, and the price of a repair rises
until the expected number is within budget. Relabelling changes labels only from 1 to 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Smoothing(StrEnum):
    """How the contributions of several critical mismatches combine (WISV eq. 28; the published formula is lost).

    The sum ranks a critical mismatch among others above a lone one; the maximum gives every critical one 1, so that
    relabelling cannot tell them apart.
    """

    SUM = "sum"
    MAX = "max"


def smoothed_importance(
    places: Sequence[int], labels: Sequence[int], kappa: float, smoothing: Smoothing = Smoothing.SUM
) -> Floats:
    """``[M]``: sum or maximum over m' of ``l_m' exp(-|m - m'| / kappa)``.

    Args:
        places: ``[M]``, which mismatch of its answer each one is.
        labels: ``[M]``, 1 if it is critical.
        kappa: mismatches over which importance falls to 1 / e, above 0.
        smoothing: sum or maximum.
    """
    if not len(places):
        return np.empty(0)
    at = np.asarray(places, np.float64)
    parts = np.exp(-np.abs(at[:, None] - at[None]) / kappa) * np.asarray(labels, np.float64)
    found: Floats = parts.sum(1) if smoothing is Smoothing.SUM else parts.max(1)
    return found


_HALVINGS = 60
_FAR = 60.0  # the policy is 0 or 1 this many temperatures away from the price

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Relabelling:
    least_share: float = 0.7  # of the critical mismatches: still repaired on the worst link
    temperature: float = 0.25  # in units of importance

    def share(self, quality: float) -> float:
        """Budget of a link of this quality (0..1), as a share of all critical mismatches."""
        return self.least_share + (1.0 - self.least_share) * quality


def repair_probs(importance: Floats, labels: Labels, price: float, temperature: float) -> Floats:
    """``[M]``, eq. 31; at a price of minus infinity the labels themselves."""
    if np.isneginf(price):
        return labels.astype(np.float64)
    scaled = np.clip((importance - price) / temperature, -700.0, 700.0)
    probs: Floats = labels / (1.0 + np.exp(-scaled))
    return probs


def repair_price(importance: Floats, labels: Labels, budget: float, temperature: float) -> float:
    """The lowest price at which at most ``budget`` repairs are expected; minus infinity if all are within it.

    ``importance`` and ``labels`` (1 if critical) are ``[M]``, ``budget`` and ``temperature`` above 0.
    """
    if budget >= labels.sum():
        return -np.inf
    own = importance[labels == 1]
    ones = np.ones(len(own), np.int64)
    low, high = own.min() - _FAR * temperature, own.max() + _FAR * temperature
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if repair_probs(own, ones, middle, temperature).sum() > budget:
            low = middle
        else:
            high = middle
    return float(high)


def relabelled(labels: Labels, probs: Floats, rng: np.random.Generator) -> Labels:
    """``[M]``: labels of 1 stay 1 with the given probabilities."""
    drawn: Labels = ((rng.random(len(labels)) < probs) & (labels == 1)).astype(np.int64)
    return drawn
