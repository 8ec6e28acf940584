"""WISV's decision head: the probability that a mismatch must be rejected, from two hidden states and the link.

``x = [h_drafter ; h_target ; csi]``, each number standardised by what was seen in training, then a linear layer, ReLU,
a linear layer and a sigmoid (WISV eq. 23-25; dropout is for training alone). A mismatch is rejected iff its probability
reaches the threshold (eq. 27): at 0 all are, which is strict greedy verification, at 1 none is.

Both states are final-norm outputs whose logits predict the position in question. Single numbers of them may be
thousands of times larger than others, so each is taken on its own scale, and no further than eight of its deviations.
A link is taken no further than two of them: beyond what training drew, for the nearest that it drew.
Computed in float64, so that an answer does not depend on what else is asked beside it.
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
_FURTHEST, _LINK_FURTHEST = 8.0, 2.0  # deviations; the ends of an even distribution are 1.73 from its mean
_LEAST_RTT_S, _LEAST_RATE_BPS = 1e-4, 1.0


def csi_features(channel: Csi | None) -> Floats:
    """``[5]``: decimal logarithms of both rates (bit/s), both packet error rates, logarithm of the round trip (s).

    Not known: all NaN, which a head takes for the mean of its training.
    """
    if channel is None:
        return np.full(CSI_WIDTH, np.nan)
    rates = [math.log10(max(rate, _LEAST_RATE_BPS)) for rate in (channel.up_bps, channel.down_bps)]
    return np.array([*rates, channel.per_up, channel.per_down, math.log10(max(channel.rtt_s, _LEAST_RTT_S))])


@dataclass(frozen=True, slots=True, eq=False)
class Standard:
    """What the numbers of one kind were like in training: ``[d]`` means, and deviations above 0."""

    mean: Floats
    deviation: Floats

    def __call__(self, numbers: Floats) -> Floats:
        """``[M, d]`` in deviations from the mean; NaN is the mean."""
        found = (numbers - self.mean) / self.deviation
        return np.clip(np.nan_to_num(found, nan=0.0, posinf=_FURTHEST, neginf=-_FURTHEST), -_FURTHEST, _FURTHEST)


def link_inputs(standard: Standard, csi: Floats) -> Floats:
    """``[M, 5]`` of ``csi_features`` as a head takes them."""
    return np.clip(standard(csi), -_LINK_FURTHEST, _LINK_FURTHEST)


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """Parameters of a head; ``hidden`` units between two linear layers.

    Attributes:
        drafter: of a drafter's hidden state.
        target: of a target's.
        csi: of ``csi_features``.
        inner: ``[hidden, d_drafter + d_target + 5]``.
        inner_bias: ``[hidden]``.
        outer: ``[hidden]``.
        outer_bias: of the logit.
    """

    drafter: Standard
    target: Standard
    csi: Standard
    inner: Floats
    inner_bias: Floats
    outer: Floats
    outer_bias: float

    def __post_init__(self) -> None:
        """Refuse parameters that do not fit one another."""
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
        """Refuse a threshold that is no probability."""
        if not 0.0 <= self.threshold <= 1.0:
            raise ParameterError("threshold", "a number in 0..1", self.threshold)

    @property
    def drafter_width(self) -> int:
        """Length of a drafter's hidden state."""
        return len(self.weights.drafter.mean)

    def rejection_probs(self, drafter_hidden: Floats, target_hidden: Floats, csi: Floats) -> Floats:
        """``[M]`` in 0..1.

        Args:
            drafter_hidden: ``[M, d_drafter]``.
            target_hidden: ``[M, d_target]``.
            csi: ``[M, 5]``, of ``csi_features``.
        """
        w = self.weights
        x = np.concatenate([w.drafter(drafter_hidden), w.target(target_hidden), link_inputs(w.csi, csi)], axis=1)
        logits = np.maximum(x @ w.inner.T + w.inner_bias, 0.0) @ w.outer + w.outer_bias
        probs: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0)))
        return probs

    def accepts(self, questions: Sequence[MismatchQuestion]) -> list[list[bool]]:
        """All in one product; see ``MismatchJudge``. A mismatch with a state that is not finite never passes."""
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
        """Whether so probable a rejection is not made."""
        return (rejection_probs < self.threshold) | (self.threshold >= 1.0)
