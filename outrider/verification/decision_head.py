"""WISV's decision head: probability that a mismatch must be rejected, from two hidden states and the link state.

``x = [h_drafter ; h_target ; csi]``, each number standardised by its distribution in training, then a linear layer,
ReLU, a linear layer and a sigmoid (WISV eq. 23-25; dropout is for training alone). A mismatch is rejected iff its
probability reaches the threshold (eq. 27): at 0 all are, which is strict greedy verification, at 1 none is.

Both hidden states are final-norm outputs whose logits predict the position in question. Some of their numbers are
thousands of times larger than others, so each is standardised by itself and clipped at eight deviations. Link features
are clipped at two: a link outside the range of training is treated as the nearest one inside.
Computed in float64, so that an answer does not depend on the other questions of the batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError, ShapeError
from outrider.contracts.link import Csi
from outrider.verification.semantic import MismatchQuestion

Floats = npt.NDArray[np.float64]

CSI_WIDTH = 5
_FURTHEST, _LINK_FURTHEST = 8.0, 2.0  # deviations; the ends of a uniform distribution are 1.73 from its mean
_LEAST_RTT_S, _LEAST_RATE_BPS = 1e-4, 1.0


def csi_features(channel: Csi | None) -> Floats:
    """Return ``[5]``: log10 of both rates (bit/s), both packet error rates, log10 of the RTT (s).

    All NaN if the link state is not known; a head replaces that by the mean of its training.
    """
    if channel is None:
        return np.full(CSI_WIDTH, np.nan)
    rates = [math.log10(max(rate, _LEAST_RATE_BPS)) for rate in (channel.up_bps, channel.down_bps)]
    return np.array([*rates, channel.per_up, channel.per_down, math.log10(max(channel.rtt_s, _LEAST_RTT_S))])


@dataclass(frozen=True, slots=True, eq=False)
class Standard:
    """Distribution of one kind of input in training: ``[d]`` means, and deviations above 0."""

    mean: Floats
    deviation: Floats

    def __call__(self, numbers: Floats) -> Floats:
        """Return ``[M, d]`` deviations from the mean, clipped; NaN counts as the mean."""
        found = (numbers - self.mean) / self.deviation
        return np.clip(np.nan_to_num(found, nan=0.0, posinf=_FURTHEST, neginf=-_FURTHEST), -_FURTHEST, _FURTHEST)


def link_inputs(standard: Standard, csi: Floats) -> Floats:
    """Return ``[M, 5]`` of ``csi_features`` as input of a head."""
    return np.clip(standard(csi), -_LINK_FURTHEST, _LINK_FURTHEST)


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """Parameters of a head; ``hidden`` units between two linear layers."""

    drafter: Standard  # standardises a drafter's hidden state
    target: Standard  # standardises a target's
    csi: Standard  # standardises ``csi_features``
    inner: Floats  # ``[hidden, d_drafter + d_target + 5]``
    inner_bias: Floats  # ``[hidden]``
    outer: Floats  # ``[hidden]``
    outer_bias: float  # of the logit

    def __post_init__(self) -> None:
        if len(self.csi.mean) != CSI_WIDTH:
            raise ShapeError(f"a head needs {CSI_WIDTH} numbers of the link, found {len(self.csi.mean)}")
        width, hidden = len(self.drafter.mean) + len(self.target.mean) + CSI_WIDTH, len(self.outer)
        if self.inner.shape != (hidden, width) or self.inner_bias.shape != (hidden,):
            raise ShapeError(f"a head needs inner weights of {[hidden, width]}, found {list(self.inner.shape)}")


@dataclass(frozen=True, slots=True, eq=False)
class DecisionHead:
    weights: HeadWeights
    threshold: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise ParameterError("threshold", "a number in 0..1", self.threshold)

    @property
    def drafter_width(self) -> int:
        return len(self.weights.drafter.mean)

    def rejection_probs(self, drafter_hidden: Floats, target_hidden: Floats, csi: Floats) -> Floats:
        """Return ``[M]`` in 0..1, of ``[M, d_drafter]``, ``[M, d_target]`` and ``[M, 5]`` ``csi_features``."""
        w = self.weights
        x = np.concatenate([w.drafter(drafter_hidden), w.target(target_hidden), link_inputs(w.csi, csi)], axis=1)
        logits = np.maximum(x @ w.inner.T + w.inner_bias, 0.0) @ w.outer + w.outer_bias
        probs: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0)))
        return probs

    def accepts(self, questions: Sequence[MismatchQuestion]) -> list[list[bool]]:
        """Answer all questions in one product; see ``MismatchJudge``. Non-finite states are never accepted."""
        if not questions:
            return []
        drafter = np.concatenate([one.drafter_hidden for one in questions]).astype(np.float64)
        target = np.concatenate([one.target_hidden for one in questions]).astype(np.float64)
        counts = [len(one.drafter_hidden) for one in questions]
        csi = np.repeat([csi_features(one.channel) for one in questions], counts, axis=0)
        finite = np.isfinite(drafter).all(axis=1) & np.isfinite(target).all(axis=1)
        passes = self.passes(self.rejection_probs(drafter, target, csi)) & finite
        return [part.tolist() for part in np.split(passes, np.cumsum(counts)[:-1])]

    def passes(self, rejection_probs: Floats) -> npt.NDArray[np.bool_]:
        """Return whether mismatches of these probabilities are accepted; at a threshold of 1 all are."""
        return (rejection_probs < self.threshold) | (self.threshold >= 1.0)
