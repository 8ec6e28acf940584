"""Semantic decoding at several thresholds on several links beside strict verification; the choice of a threshold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.training.head.links import round_s
from lab.training.head.mismatches import Rounding
from lab.training.head.pair import EncodedTask, Pair
from lab.training.head.relabelling import Floats
from lab.training.head.semantic_decoding import Decoded, HeadRule, LinkedHead, MismatchRule, StrictRule, decode
from outrider.contracts.errors import ShapeError
from outrider.contracts.link import Csi
from outrider.verification.decision_head import HeadWeights

_RESAMPLES, _AT_ONCE = 10_000, 500


def drop_upper_bound(
    strict: Sequence[float], semantic: Sequence[float], *, confidence: float = 0.95, seed: int = 0
) -> float:
    """Upper end of the one-sided bootstrap interval (percentiles) of the mean of ``strict - semantic``.

    Both are ``[T]`` scores of the same T tasks, T >= 1.
    """
    if len(strict) != len(semantic) or not len(strict):
        raise ShapeError(f"needs scores of the same tasks, at least one, found {len(strict)} and {len(semantic)}")
    drops = np.asarray(strict, np.float64) - np.asarray(semantic, np.float64)
    return float(np.quantile(_resampled_means(drops, seed), confidence, method="higher"))


def mean_interval(scores: Sequence[float], *, confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Both ends of the bootstrap interval of a mean."""
    means = _resampled_means(np.asarray(scores, np.float64), seed)
    low, high = np.quantile(means, [(1.0 - confidence) / 2, (1.0 + confidence) / 2])
    return float(low), float(high)


def ratio_interval(
    tops: Sequence[float], bottoms: Sequence[float], *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Both ends of the bootstrap interval of a ratio of sums, pairs redrawn; 0 to 1 if the lower sum is 0."""
    pairs = np.stack([np.asarray(tops, np.float64), np.asarray(bottoms, np.float64)], axis=1)
    if not pairs[:, 1].sum():
        return 0.0, 1.0
    means = _resampled_means(pairs, seed)
    found = means[means[:, 1] > 0.0]
    low, high = np.quantile(found[:, 0] / found[:, 1], [(1.0 - confidence) / 2, (1.0 + confidence) / 2])
    return float(low), float(high)


def choose_threshold(thresholds: Sequence[float], bounds: Sequence[float], most_drop: float) -> float:
    """The last of rising thresholds before the first whose bound is not below ``most_drop``; 0 if there is none.

    Each is tested at the full confidence of its bound, up to the first failure, so the chance of choosing one whose
    true drop exceeds the limit is at most one minus that, as far as the interval is right. It suits many tasks with
    drops of one order. Where drops are few and large, as with all-or-nothing scores, a hundred tasks may contain none:
    at a true drop of 0.01 a threshold then passes up to one time in four (129 tasks, one in a hundred falls by 1).
    """
    chosen = 0.0
    for threshold, bound in zip(thresholds, bounds, strict=True):
        if not bound < most_drop:
            break
        chosen = threshold
    return chosen


def _resampled_means(values: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    size = _AT_ONCE, len(values)
    parts = [values[rng.integers(0, len(values), size)].mean(1) for _ in range(_RESAMPLES // _AT_ONCE)]
    return np.concatenate(parts)


STRICT = "strict"


@dataclass(frozen=True, slots=True)
class SweptRow:
    """One rule on one set of tasks.

    Attributes:
        rejection_share: of the mismatches decided: those that passed, and rejections that ended a block;
            ``rejection_low`` and ``rejection_high`` its 99 % bootstrap interval, answers redrawn.
    """

    rule: str
    link: str
    threshold: float
    score: float  # mean, 0..1; ``score_low`` and ``score_high`` its 95 % bootstrap interval
    score_low: float
    score_high: float
    drop: float  # mean of strict minus this score; ``drop_bound`` its one-sided 95 % upper bound, paired by task
    drop_bound: float
    aal: float  # committed tokens a round, correction and bonus tokens included
    rounds: float  # mean per answer
    tokens: float  # mean per answer
    rejection_share: float
    rejection_low: float
    rejection_high: float
    link_s: float  # mean time of an answer's rounds on the link with full-hidden upload (WISV eq. 6); 0 without a link


def sweep(
    pair: Pair,
    tasks: Sequence[EncodedTask],
    weights: HeadWeights,
    thresholds: Sequence[float],
    links: Mapping[str, Csi],
    *,
    window_tokens: int,
    batch: int,
    rounding: Rounding,
    others: Mapping[str, MismatchRule] | None = None,
    progress: bool = True,
) -> list[SweptRow]:
    """Return a row per link and threshold, then per other rule; see ``semantic_decoding.decode``."""
    linked = {link: LinkedHead(weights, csi) for link, csi in links.items()}
    named = {(threshold, link): HeadRule(head, threshold) for threshold in thresholds for link, head in linked.items()}
    rules: dict[str, MismatchRule] = {STRICT: StrictRule(), **(others or {})}
    rules |= {_name(*key): rule for key, rule in named.items()}
    decoded = decode(pair, tasks, rules, window_tokens=window_tokens, batch=batch, rounding=rounding, progress=progress)
    strict = decoded[STRICT]
    rows = [
        _row(
            "head",
            link,
            threshold,
            decoded[_name(threshold, link)],
            strict,
            round_s(links[link], window_tokens, pair.drafter_width),
        )
        for threshold, link in named
    ]
    return rows + [_row(name, "", 0.0, decoded[name], strict, 0.0) for name in (STRICT, *(others or {}))]


def worst_bounds(rows: Sequence[SweptRow], thresholds: Sequence[float]) -> list[float]:
    """For each threshold the largest bound over all links: if it is within the limit, every link is."""
    return [
        max(row.drop_bound for row in rows if row.rule == "head" and row.threshold == threshold)
        for threshold in thresholds
    ]


def _name(threshold: float, link: str) -> str:
    return f"{threshold} {link}"


def _row(
    rule: str, link: str, threshold: float, own: Sequence[Decoded], strict: Sequence[Decoded], link_round_s: float
) -> SweptRow:
    scores, strict_scores = [one.score for one in own], [one.score for one in strict]
    mean, rounds = sum(scores) / len(own), sum(one.counts.rounds for one in own)
    tokens, judged = sum(len(one.answer_ids) for one in own), sum(one.counts.judged for one in own)
    low, high = mean_interval(scores)
    overrides = sum(one.counts.overrides for one in own)
    rejections = [one.counts.judged - one.counts.overrides for one in own]
    least, most = ratio_interval(rejections, [one.counts.judged for one in own], confidence=0.99)
    return SweptRow(
        rule=rule,
        link=link,
        threshold=threshold,
        score=mean,
        score_low=low,
        score_high=high,
        drop=sum(strict_scores) / len(own) - mean,
        drop_bound=drop_upper_bound(strict_scores, scores),
        aal=tokens / rounds,
        rounds=rounds / len(own),
        tokens=tokens / len(own),
        rejection_share=1.0 - overrides / judged if judged else 1.0,
        rejection_low=least,
        rejection_high=most,
        link_s=link_round_s * rounds / len(own),
    )
