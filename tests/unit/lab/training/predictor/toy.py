"""Tokens whose true probability of acceptance is known."""

import numpy as np
from scipy.special import expit

from lab.training.predictor.drafted import DraftedTokens, Floats


def truth(features: Floats) -> Floats:
    """A margin of 0.5 is accepted half of the time; entropy counts against it, twice as much where it is large."""
    probs: Floats = expit(6.0 * (features[:, 2] - 0.5) - np.maximum(features[:, 1] - 1.5, 0.0))
    return probs


def toy(seed: int, count: int = 1500, shift: float = 0.0) -> DraftedTokens:
    """``shift`` moves margins up, and so the share that is accepted."""
    rng = np.random.default_rng(seed)
    margin = np.clip(rng.uniform(size=count) + shift, 0.0, 1.0)
    confidence = margin + (1.0 - margin) * rng.uniform(0.0, 0.5, count)
    features = np.stack([confidence, rng.uniform(0.0, 4.0, count), margin, rng.normal(3.0, 0.5, count)], 1)
    accepted = (rng.uniform(size=count) < truth(features)).astype(np.int64)
    temperature = np.where(np.arange(count) % 2 == 0, 0.7, 1.0)
    return DraftedTokens(features, accepted, temperature, np.arange(count) // 50)
