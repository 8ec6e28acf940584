"""How well a model separates accepted from rejected draft tokens, and how well its probabilities are calibrated.

Accepted is the positive class. Under a rule that stops before the first token predicted to be rejected, false positives
are rejected tokens that are drafted (waste), false negatives accepted ones that are not (coverage): WISP tables 4, 10.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.training.predictor.drafted import DraftedTokens
from lab.training.ranking import Floats, Labels, area_under_curve
from outrider.contracts.errors import ShapeError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import sigmoid
from outrider.drafting.recalibration import ChainVerdict, Recalibration, SentChain

_BINS = 15  # of the calibration error, the usual number (Guo et al. 2017)
_LEAST = 1e-7  # probabilities are clipped this far inside (0, 1) before their logarithm


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts at one threshold. Rates of a class that does not occur are None."""

    true_rejected: int  # rejected, predicted rejected (TN)
    false_accepted: int  # rejected, predicted accepted (FP)
    false_rejected: int  # accepted, predicted rejected (FN)
    true_accepted: int  # accepted, predicted accepted (TP)

    @property
    def accuracy(self) -> float | None:
        return _share(
            self.true_rejected + self.true_accepted,
            self.true_rejected + self.false_accepted + self.false_rejected + self.true_accepted,
        )

    @property
    def recall_accepted(self) -> float | None:
        return _share(self.true_accepted, self.true_accepted + self.false_rejected)

    @property
    def specificity(self) -> float | None:
        """Share of the rejected that are predicted rejected."""
        return _share(self.true_rejected, self.true_rejected + self.false_accepted)

    @property
    def false_positive_rate(self) -> float | None:
        """Share of the rejected that are predicted accepted."""
        return _share(self.false_accepted, self.true_rejected + self.false_accepted)

    @property
    def balanced_accuracy(self) -> float | None:
        accepted, rejected = self.recall_accepted, self.specificity
        return None if accepted is None or rejected is None else (accepted + rejected) / 2.0


def confusion(says_accepted: npt.NDArray[np.bool_], accepted: Labels) -> Confusion:
    right = np.asarray(accepted) == 1
    _check(len(says_accepted), len(right))
    return Confusion(
        true_rejected=int((~says_accepted & ~right).sum()),
        false_accepted=int((says_accepted & ~right).sum()),
        false_rejected=int((~says_accepted & right).sum()),
        true_accepted=int((says_accepted & right).sum()),
    )


def waste_at_coverage(scores: Floats, accepted: Labels, recall: float) -> float | None:
    """The lowest false positive rate of a threshold with a recall of at least ``recall``.

    It compares two models when each may choose its own threshold.
    """
    positive = np.asarray(accepted) == 1
    if not positive.any() or positive.all():
        return None
    falling = np.sort(scores[positive])[::-1]
    threshold = falling[max(1, int(np.ceil(recall * len(falling) - 1e-9))) - 1]
    return float((scores[~positive] >= threshold).mean())


def calibration_error(probs: Floats, accepted: Labels) -> float | None:
    """Expected calibration error: mean gap between probability and accepted share in equal bins, by count."""
    labels = np.asarray(accepted, np.float64)
    _check(len(probs), len(labels))
    if not len(labels):
        return None
    bins = np.minimum((probs * _BINS).astype(np.int64), _BINS - 1)
    gaps = np.bincount(bins, weights=labels - probs, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(labels))


def log_loss(probs: Floats, accepted: Labels) -> float:
    """Mean cross-entropy in nats."""
    labels, inside = np.asarray(accepted, np.float64), np.clip(probs, _LEAST, 1.0 - _LEAST)
    _check(len(probs), len(labels))
    return float(-(labels * np.log(inside) + (1.0 - labels) * np.log1p(-inside)).mean())


@dataclass(frozen=True, slots=True)
class Quality:
    tokens: int  # N
    accepted_share: float  # share of accepted tokens
    confusion: Confusion  # at the model's own operating point
    auc: float | None  # see ``area_under_curve``
    waste_at_80: float | None  # false positive rate at a recall of 80 % (that of the paper's MLP)
    raw_error: float | None  # calibration error of the model's own probabilities
    error: float | None  # the same after calibration
    raw_loss: float  # log loss of the model's own probabilities
    loss: float  # the same after calibration


def quality(raw: Floats, calibrated: Floats, accepted: Labels, threshold: float = 0.5) -> Quality:
    """Evaluate ``[N]`` raw and calibrated probabilities; ``raw >= threshold`` predicts acceptance."""
    labels = np.asarray(accepted, np.int64)
    return Quality(
        tokens=len(labels),
        accepted_share=float(labels.mean()),
        confusion=confusion(raw >= threshold, labels),
        auc=area_under_curve(raw, labels),
        waste_at_80=waste_at_coverage(raw, labels, 0.8),
        raw_error=calibration_error(raw, labels),
        error=calibration_error(calibrated, labels),
        raw_loss=log_loss(raw, labels),
        loss=log_loss(calibrated, labels),
    )


@dataclass(frozen=True, slots=True)
class FeatureTrend:
    """Acceptance against one feature (WISP figures 2 and 3).

    Attributes:
        bins: mean of the feature, accepted share, tokens; per tenth of the tokens by rising feature.
    """

    feature: str  # its name
    correlation: float | None  # Pearson's, with acceptance; None if either does not vary
    bins: tuple[tuple[float, float, int], ...]


def feature_trend(name: str, values: Floats, accepted: Labels, bins: int = 10) -> FeatureTrend:
    """Of ``[N]`` values, N >= 1."""
    labels = np.asarray(accepted, np.float64)
    _check(len(values), len(labels))
    varies = values.std() > 0.0 and labels.std() > 0.0
    parts = np.array_split(np.argsort(values, kind="stable"), min(bins, len(values)))
    reported = tuple((float(values[part].mean()), float(labels[part].mean()), len(part)) for part in parts)
    return FeatureTrend(name, float(np.corrcoef(values, labels)[0, 1]) if varies else None, reported)


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds per single call (WISP table 11)."""

    mean_ms: float
    median_ms: float
    std_ms: float
    min_ms: float
    max_ms: float
    p95_ms: float
    p99_ms: float


def latency(calls_s: Sequence[float]) -> Latency:
    ms = np.asarray(calls_s, np.float64) * 1e3
    p95, p99 = np.quantile(ms, [0.95, 0.99])
    values = (ms.mean(), np.median(ms), ms.std(), ms.min(), ms.max(), p95, p99)
    return Latency(*map(float, values))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _check(found: int, needed: int) -> None:
    if found != needed:
        raise ShapeError(f"needs one number for each of {needed} labels, found {found}")


@dataclass(frozen=True, slots=True)
class Replay:
    """One predictor on some tokens, fixed and recalibrated."""

    tokens: int  # number
    loss_before: float  # log loss of the fixed predictor
    loss: float  # of the recalibrated one
    error_before: float | None  # calibration error of the fixed predictor
    error: float | None  # of the recalibrated one


def replay(logits: Floats, tokens: DraftedTokens, rule: AcceptanceRule, window_tokens: int) -> dict[str, Replay]:
    """Replay responses one after the other, round by round, as a device sees them; by temperature, ``all`` first.

    ``logits``: ``[N]``, the predictor's, of ``tokens`` of rounds of at most ``window_tokens``, verified by ``rule``.
    """
    recalibration, reported = Recalibration({}), np.empty(len(tokens))
    for part in _rounds(tokens, window_tokens):
        temperature, own = float(tokens.temperature[part.start]), tuple(logits[part].tolist())
        known = recalibration.calibration(rule, temperature)
        reported[part] = [known.probability(logit) for logit in own]
        accepted = int(tokens.accepted[part].sum())
        recalibration.learn(ChainVerdict(SentChain(rule, temperature, own), accepted, accepted < len(own)))
    before = np.array([sigmoid(logit) for logit in logits.tolist()])
    parts = {"all": np.ones(len(tokens), np.bool_)}
    if len(found := np.unique(tokens.temperature)) > 1:
        parts |= {f"{temperature:g}": tokens.temperature == temperature for temperature in found.tolist()}
    return {name: _replay(before[part], reported[part], tokens.where(part)) for name, part in parts.items()}


def _rounds(tokens: DraftedTokens, window_tokens: int) -> Iterator[slice]:
    """A round ends behind a rejection, or where its window or response ends."""
    start = 0
    for at in range(1, len(tokens) + 1):
        ends = at == len(tokens) or not tokens.accepted[at - 1] or at - start == window_tokens
        ends = ends or tokens.prompt[at] != tokens.prompt[start] or tokens.temperature[at] != tokens.temperature[start]
        if ends:
            yield slice(start, at)
            start = at


def _replay(before: Floats, reported: Floats, tokens: DraftedTokens) -> Replay:
    losses = (log_loss(probs, tokens.accepted) for probs in (before, reported))
    errors = (calibration_error(probs, tokens.accepted) for probs in (before, reported))
    return Replay(len(tokens), *losses, *errors)
