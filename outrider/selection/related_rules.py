"""Infer acceptance under a sampling rule that was not observed yet from acceptance under another one."""

import numpy as np

from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance_view import RULES, Floats, rule_row

# Before anything is known a pair is taken for a good one, so that a new pair is tried.
_PRIOR_MEAN = np.array([0.85 if rule is AcceptanceRule.RATIO else 0.8 for rule in RULES])
_PRIOR_TOKENS = 3.0  # observations the prior is worth
_RELATED_TOKENS = 100.0  # at most, what is known of the other sampling rule is worth: the width of its bounds
_RATIO, _SHARED_NOISE = rule_row(AcceptanceRule.RATIO), rule_row(AcceptanceRule.SHARED_NOISE)


def shared_noise_from_ratio(ratio: float) -> float:
    """Acceptance under shared noise to expect of a pair whose ratio acceptance 1 - TV is known.

    At least (1 - TV) / (1 + TV) (Daliri, Musco, Suresh 2024), at most 1 - TV, which no exact sampler passes; measured
    pairs lie about three quarters of the way up.
    """
    return 0.25 * ratio / (2.0 - ratio) + 0.75 * ratio


def ratio_from_shared_noise(shared_noise: float) -> float:
    """The inverse of ``shared_noise_from_ratio``."""
    # 0.25 r / (2 - r) + 0.75 r = s is a quadratic in r.
    half = (1.75 + shared_noise) / 1.5
    return float(half - np.sqrt(max(half * half - 2.0 * shared_noise / 0.75, 0.0)))


def related_prior(accepted: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Prior mean and weight of each rule: the default, and what the other sampling rule tells of it."""
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
