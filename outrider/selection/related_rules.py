"""Prior of acceptance under shared noise from that under the ratio rule, and the other way round."""

import numpy as np

from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance_view import RULES, Floats, rule_row

# The prior is that of a good pair, so that a new pair is tried at all.
_PRIOR_MEAN = np.array([0.85 if rule is AcceptanceRule.RATIO else 0.8 for rule in RULES])
_PRIOR_TOKENS = 3.0  # weight of the prior, in tokens
_RELATED_TOKENS = 100.0  # largest weight of the other rule's tokens; it reflects the width of the bounds below
_RATIO, _SHARED_NOISE = rule_row(AcceptanceRule.RATIO), rule_row(AcceptanceRule.SHARED_NOISE)


def shared_noise_from_ratio(ratio: float) -> float:
    """Return the acceptance under shared noise to expect of a pair whose ratio acceptance is 1 - TV.

    It is at least (1 - TV) / (1 + TV) (Daliri, Musco, Suresh 2024) and at most 1 - TV, the bound of all exact samplers.
    Measured pairs lie about three quarters of the way from the lower bound to the upper one.
    """
    return 0.25 * ratio / (2.0 - ratio) + 0.75 * ratio


def ratio_from_shared_noise(shared_noise: float) -> float:
    """Return the ratio acceptance that has this acceptance under shared noise (inverse of the above)."""
    # 0.25 r / (2 - r) + 0.75 r = s is a quadratic in r.
    half = (1.75 + shared_noise) / 1.5
    return float(half - np.sqrt(max(half * half - 2.0 * shared_noise / 0.75, 0.0)))


def related_prior(accepted: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Return prior mean and weight in tokens of each rule, ``[rules]``: the default, mixed with the related rule's."""
    prior, weight = _PRIOR_MEAN.copy(), np.full(len(RULES), _PRIOR_TOKENS)
    for row, other, related in (
        (_SHARED_NOISE, _RATIO, shared_noise_from_ratio),
        (_RATIO, _SHARED_NOISE, ratio_from_shared_noise),
    ):
        known = min(float(seen[other]), _RELATED_TOKENS)
        if known > 0.0:
            weight[row] = _PRIOR_TOKENS + known
            prior[row] = (_PRIOR_TOKENS * prior[row] + known * related(accepted[other] / seen[other])) / weight[row]
    return prior, weight
