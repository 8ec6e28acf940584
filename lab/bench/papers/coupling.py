"""Exact probability that a draft token becomes the target's, from the two distributions at one position.

Every rule here emits a token distributed as ``target``. ``Coupled.acceptance`` averages over that token;
``Coupled.given_token`` is the probability that a *given* emitted token came from the draft. Along a response that the
target drew itself, those events are independent between positions, which makes round lengths exact
(``lab.bench.papers.rounds``).

Rows are one-dimensional float64 over the vocabulary and sum to 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
import numpy.typing as npt

from outrider.sampling.distributions import Probs, residual, total_variation


@dataclass(frozen=True, slots=True)
class Coupled:
    """Probability of acceptance at one position: over the target's tokens, and given the one that was emitted."""

    acceptance: float
    given_token: float


def by_falling(probs: Probs) -> npt.NDArray[np.int64]:
    """``[vocab]`` token ids, most probable first, lowest id first on ties."""
    order: npt.NDArray[np.int64] = np.argsort(-probs, kind="stable").astype(np.int64)
    return order


def keep_top(probs: Probs, order: npt.NDArray[np.int64], kept: int) -> Probs:
    """The ``kept`` most probable tokens, renormalised (TSLT eq. 12, whose two cases are printed exchanged, and 13)."""
    rest = np.zeros_like(probs)
    rest[order[:kept]] = probs[order[:kept]]
    truncated: Probs = rest / rest.sum()
    return truncated


def siblings(target: Probs, draft: Probs, token: int, count: int) -> Coupled:
    """``count`` candidates drawn with replacement under the ratio rule (TSLT eq. 25, 30, 39); one is a chain (eq. 15).

    The residual does not depend on what was drawn, so rejections multiply.
    """
    rejected, rest = 1.0, target
    for _ in range(count):
        rejected *= total_variation(rest, draft)
        rest = residual(rest, draft)
    return Coupled(1.0 - rejected, 1.0 - float(rejected * rest[token] / target[token]))


def distinct_pair(target: Probs, draft: Probs, token: int) -> Coupled:
    """Two candidates drawn without replacement: after a rejection of a, the draft loses a and is renormalised.

    With P2 the residual and s_a = 1 / (1 - draft(a)), the second acceptance given a is sum_x min(P2(x), s_a draft(x)):
    a itself adds nothing, as a rejected token has no residual. Piecewise linear in s_a, hence one sort for all a.
    """
    lost = np.maximum(draft - target, 0.0)  # probability that a is drawn first and rejected
    rejected = float(lost.sum())
    if rejected <= 0.0:
        return Coupled(1.0, 1.0)
    gained = residual(target, draft)
    rest, top = 1.0 - draft, int(draft.argmax())
    rest[top] = np.delete(draft, top).sum()  # as ``without`` has it: 1 - draft loses the rest of a nearly certain token
    drawn = np.flatnonzero((lost > 0.0) & (rest > 0.0))  # a draft of one token has no second candidate
    scales = 1.0 / rest[drawn]
    open_ids = np.flatnonzero((gained > 0.0) & (draft > 0.0))
    ratios = gained[open_ids] / draft[open_ids]
    order = np.argsort(ratios)
    whole = np.concatenate(([0.0], np.cumsum(gained[open_ids[order]])))
    scaled = np.concatenate((np.cumsum(draft[open_ids[order]][::-1])[::-1], [0.0]))
    split = np.searchsorted(ratios[order], scales, side="right")
    second = whole[split] + scales * scaled[split]
    single_token = rejected - float(lost[drawn].sum())  # rejected, and nothing left to draw
    left = (lost[drawn] * np.maximum(gained[token] - scales * draft[token], 0.0)).sum() + single_token * gained[token]
    accepted = 1.0 - rejected + float((lost[drawn] * second).sum())
    return Coupled(accepted, 1.0 - float(left / target[token]))


def shared_noise(target: Probs, draft: Probs, token: int) -> Coupled:
    """Both draw argmax(log probs + g) with the same Gumbel noise g.

    P(both are x) = 1 / sum_y max(target(y) / target(x), draft(y) / draft(x)), by competing exponentials. The maximum is
    the first term where target(y) / draft(y) is at least as large as at x, so one sort serves all x.

    Source: Gumbel-max coupling, Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """
    both = np.flatnonzero((target > 0.0) & (draft > 0.0))
    ratios = target[both] / draft[both]
    order = both[np.argsort(ratios)]
    # Tokens that only one side can draw stand at the ends: the target's own above all ratios, the draft's below.
    only_target = float(target[draft <= 0.0].sum())
    only_draft = float(draft[target <= 0.0].sum())
    above = np.cumsum(target[order][::-1])[::-1] + only_target
    below = np.concatenate(([0.0], np.cumsum(draft[order])[:-1])) + only_draft
    same = 1.0 / (above / target[order] + below / draft[order])
    at_token = same[order == token]
    return Coupled(float(same.sum()), float(at_token[0] / target[token]) if at_token.size else 0.0)


def argmax_draft(target: Probs, draft: Probs, token: int) -> Coupled:
    """The drafter sends its most probable token, whatever the noise; accepted iff the target draws it."""
    best = int(draft.argmax())
    return Coupled(float(target[best]), float(best == token))


class Scheme(StrEnum):
    """How drafts are drawn and accepted."""

    SINGLE = "single"
    PAIR = "two with replacement"
    DISTINCT_PAIR = "two distinct"
    SHARED_NOISE = "shared noise"
    ARGMAX = "argmax draft"


SCHEMES: dict[Scheme, Callable[[Probs, Probs, int], Coupled]] = {
    Scheme.SINGLE: partial(siblings, count=1),
    Scheme.PAIR: partial(siblings, count=2),
    Scheme.DISTINCT_PAIR: distinct_pair,
    Scheme.SHARED_NOISE: shared_noise,
    Scheme.ARGMAX: argmax_draft,
}
