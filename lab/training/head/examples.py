"""Training examples of a head: mismatches of some answers, each under several links, with a label per link."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.training.head.links import LinkRanges, LinkScale
from lab.training.head.mismatches import HiddenPair
from lab.training.head.relabelling import (
    Relabelling,
    Smoothing,
    relabelled,
    repair_price,
    repair_probs,
    smoothed_importance,
)
from lab.training.head.replacing import LabelledAnswer
from outrider.contracts.exchanged import ArrayData
from outrider.verification.decision_head import csi_features

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Examples(ArrayData):
    """I examples of M mismatches under L links."""

    hidden: HiddenPair  # states at the M mismatches
    links: npt.NDArray[np.float64]  # ``[L, 5]``, from ``csi_features``
    mismatch: _Ints  # ``[I]``, index of each example's mismatch
    link: _Ints  # ``[I]``, index of each example's link
    labels: _Ints  # ``[I]``; 1: reject


@dataclass(frozen=True, slots=True)
class ExampleSettings:
    """How labels become examples.

    Attributes:
        smoothing: of importance; None: labels are the same on every link (the ablation of WISV's Figure 5).
    """

    smoothing: Smoothing | None
    policy: Relabelling
    scale: LinkScale
    ranges: LinkRanges
    links_per_answer: int  # links that each answer is repeated under
    seed: int
    kappa: float = 2.0  # see ``smoothed_importance``


def examples(
    answers: Sequence[LabelledAnswer],
    hidden: Sequence[HiddenPair],
    lesson: ExampleSettings,
    priced: Sequence[LabelledAnswer] | None = None,
) -> Examples:
    """Make seeded examples from some answers, at least one with tried mismatches; ``hidden``: states at these.

    ``priced``: answers from which each link's repair price is computed, so that held-out ones do not shift it.
    """
    rng = np.random.default_rng(lesson.seed)
    among = answers if priced is None else priced
    importances, labels = _importances(among, lesson), _labels(among)
    own = [_importances([answer], lesson) for answer in answers]
    links: list[npt.NDArray[np.float64]] = []
    mismatch, link, found = list[_Ints](), list[_Ints](), list[_Ints]()
    start = 0
    for answer, importance in zip(answers, own, strict=True):
        count = len(answer.replaced)
        for _ in range(lesson.links_per_answer):
            csi = lesson.ranges.draw(rng)
            base = _labels([answer])
            if lesson.smoothing is not None:
                budget = lesson.policy.share(lesson.scale.quality(csi)) * labels.sum()
                price = repair_price(importances, labels, budget, lesson.policy.temperature)
                base = relabelled(base, repair_probs(importance, base, price, lesson.policy.temperature), rng)
            mismatch.append(np.arange(start, start + count))
            link.append(np.full(count, len(links)))
            found.append(base)
            links.append(csi_features(csi))
        start += count
    states = (np.concatenate([getattr(one, side) for one in hidden]) for side in ("drafter", "target"))
    return Examples(HiddenPair(*states), np.stack(links), *map(np.concatenate, (mismatch, link, found)))


def _importances(answers: Sequence[LabelledAnswer], lesson: ExampleSettings) -> npt.NDArray[np.float64]:
    smoothing = lesson.smoothing or Smoothing.SUM
    parts = [
        smoothed_importance([one.mismatch.index for one in answer.replaced], answer.labels, lesson.kappa, smoothing)
        for answer in answers
    ]
    return np.concatenate(parts)


def _labels(answers: Sequence[LabelledAnswer]) -> _Ints:
    return np.array([label for answer in answers for label in answer.labels], np.int64)
