"""The four features of the draft logits a rejection predictor sees (WISP section 4.1).

Taken from the model's own logits, before bias, penalties, temperature and truncation: what a token's fate depends on is
how sure the model is, and features of one scale serve every request.
"""

import torch
from torch import Tensor

from outrider.contracts.drafting import DraftFeatures


def draft_features(logits: Tensor) -> Tensor:
    """Confidence, entropy, margin and spread of each row.

    Args:
        logits: ``[R, vocab]``, any float type, all finite; vocab at least 2.

    Returns:
        ``[R, 4]`` float32: largest probability, entropy in nats, largest less second largest probability,
        standard deviation of the logits (of the vocabulary as a whole population).
    """
    shifted = logits.float()
    shifted = shifted - shifted.amax(dim=-1, keepdim=True)
    weights = shifted.exp()
    total = weights.sum(dim=-1)
    # Entropy without a logarithm per token: that of the total, less the mean of the shifted logits.
    entropy = (total.log() - torch.linalg.vecdot(weights, shifted) / total).clamp_min(0.0)
    best, second = weights.topk(2, dim=-1).values.unbind(dim=-1)
    mean = shifted.mean(dim=-1, keepdim=True)
    # Two passes, not E[x^2] - E[x]^2: nearly equal logits would cancel.
    spread = torch.linalg.vector_norm(shifted - mean, dim=-1) / shifted.shape[1] ** 0.5
    return torch.stack((best / total, entropy, (best - second) / total, spread), dim=-1)


def to_draft_features(features: Tensor) -> tuple[DraftFeatures, ...]:
    """Rows of ``draft_features`` as data of the engine's contract (one wait for the device)."""
    return tuple(DraftFeatures(*row) for row in features.tolist())
