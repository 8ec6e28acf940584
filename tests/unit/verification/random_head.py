"""A head that was not trained."""

import numpy as np

from outrider.models.head_file import Head, HeadInfo
from outrider.verification.decision_head import CSI_WIDTH, DecisionHead, HeadWeights, Standard


def head_of(
    drafter_width: int,
    target_width: int,
    threshold: float = 0.5,
    *,
    seed: int = 0,
    rejection: tuple[float, float] = (0.0, 1.0),
) -> Head:
    """A head with random weights, to which the link is all the same, and whose share of rejections is not known."""
    rng = np.random.default_rng(seed)
    widths = drafter_width, target_width, CSI_WIDTH
    drafter, target, csi = (Standard(np.zeros(width), np.ones(width)) for width in widths)
    inner = rng.normal(size=(8, drafter_width + target_width + CSI_WIDTH))
    inner[:, -CSI_WIDTH:] = 0.0
    weights = HeadWeights(drafter, target, csi, inner, rng.normal(size=8), rng.normal(size=8), 0.0)
    info = HeadInfo("target", "t" * 64, "drafter", "d" * 64, threshold, *rejection, "fp16")
    return Head(info, DecisionHead(weights, threshold))
