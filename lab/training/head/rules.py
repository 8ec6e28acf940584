"""Rules that decide on mismatches: a head on a link, and rules without one as baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outrider.contracts.exchanged import FloatRow
from outrider.contracts.link import Csi
from outrider.verification.decision_head import DecisionHead, HeadWeights, csi_features


@dataclass(frozen=True, slots=True, eq=False)
class RoundFacts:
    """Rows of a drafter and its target behind one prefix; K draft tokens, M mismatches."""

    draft: Sequence[int]  # K tokens
    choices: Sequence[int]  # ``[K + 1]``, the target's argmax at each row
    found: Sequence[int]  # ``[M]``, the mismatching rows
    drafter_hidden: FloatRow  # ``[M, d_drafter]``, as decoded from the link
    target_hidden: FloatRow  # ``[M, d_target]``
    draft_probs: npt.NDArray[np.float64]  # ``[M]``, the target's probability of the draft token, at temperature 1
    draft_ranks: npt.NDArray[np.int64]  # ``[M]``, number of tokens that the target prefers to it


class MismatchRule(Protocol):
    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        """``[M]``, M >= 1."""
        ...


@dataclass(frozen=True, slots=True)
class StrictRule:
    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        return [False] * len(facts.found)


@dataclass(slots=True, eq=False)
class LinkedHead:
    """A head on a link, for any threshold; caches its last result, as all thresholds ask for the same rows."""

    weights: HeadWeights
    link: Csi
    _last: tuple[RoundFacts, npt.NDArray[np.float64]] | None = None

    def rejection_probs(self, facts: RoundFacts) -> npt.NDArray[np.float64]:
        """``[M]``."""
        if self._last is None or self._last[0] is not facts:
            states = (facts.drafter_hidden.astype(np.float64), facts.target_hidden.astype(np.float64))
            csi = np.repeat(csi_features(self.link)[None], len(facts.found), axis=0)
            self._last = facts, DecisionHead(self.weights, 0.0).rejection_probs(*states, csi)
        return self._last[1]


@dataclass(frozen=True, slots=True)
class HeadRule:
    linked: LinkedHead
    threshold: float

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        passes = DecisionHead(self.linked.weights, self.threshold).passes(self.linked.rejection_probs(facts))
        return [bool(one) for one in passes]


@dataclass(frozen=True, slots=True)
class ProbabilityRule:
    least_prob: float

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        return [bool(prob >= self.least_prob) for prob in facts.draft_probs]


@dataclass(frozen=True, slots=True)
class RankRule:
    """Accept draft tokens among the target's ``most`` most probable."""

    most: int

    def accepts(self, facts: RoundFacts) -> Sequence[bool]:
        return [bool(rank < self.most) for rank in facts.draft_ranks]


HEAD_FREE: Mapping[str, MismatchRule] = {
    **{f"probability >= {least}": ProbabilityRule(least) for least in (0.5, 0.4, 0.3, 0.2, 0.1, 0.05)},
    **{f"rank <= {most}": RankRule(most) for most in (2, 3)},
}
