"""Estimate the acceptance of n-gram drafts by the length of the match, from how often continuations came true.

A token drafted behind a match of n tokens has n matching tokens before it; if it is right, the next has n + 1. So the
k-th token of a draft has the acceptance learned for matches of length n + k - 1.

Learning needs no draft: every continuation found is compared with the tokens that were committed there.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

_LENGTHS = (3, 4, 6, 10, 16)  # shortest match of each class of lengths
_FIRST = ((1.0, 1.0), (1.5, 1.0), (3.0, 1.0), (6.0, 1.0), (12.0, 1.0))  # prior counts of each: true, false
_KEPT, _KEPT_BY_ALL = 0.95, 0.995  # share of the counts kept at each token: of one text, of all together
_OTHERS = 3.0  # weight of all texts' experience as a text's prior, in tokens
_KINDS = {length: sum(length >= least for least in _LENGTHS) - 1 for length in range(_LENGTHS[0], _LENGTHS[-1] + 1)}


def kind_of(matched: int) -> int:
    """Return the class of a match's length, which is at least 3."""
    return _KINDS[min(matched, _LENGTHS[-1])]


class Matches:
    """Counts of continuations that came true or not, of one text with all texts' (``others``) as prior. Mutable."""

    def __init__(self, others: "Matches | None" = None) -> None:
        """Begin with ``others`` as prior; without it these are the counts of all texts, which begin with a guess."""
        self._others = others
        self._counts = [[0.0, 0.0] if others is not None else list(first) for first in _FIRST]

    def likely(self, matched: int) -> float:
        true, false = self._counts[kind_of(matched)]
        if self._others is None:
            return true / (true + false)
        return (true + _OTHERS * self._others.likely(matched)) / (true + false + _OTHERS)

    def survivals(self, matched: int, tokens: int) -> tuple[float, ...]:
        return tuple(accumulate((self.likely(matched + i) for i in range(tokens)), mul))

    def came(self, matched: int, drafted: Sequence[int], committed: Sequence[int]) -> None:
        """Learn from a continuation and the tokens committed in its place, up to the first that differs."""
        for i, (promised, token_id) in enumerate(zip(drafted, committed, strict=False)):
            self._learn(matched + i, true=promised == token_id)
            if promised != token_id:
                return

    def _learn(self, matched: int, *, true: bool) -> None:
        counts, kept = self._counts[kind_of(matched)], _KEPT_BY_ALL if self._others is None else _KEPT
        counts[0] = kept * counts[0] + true
        counts[1] = kept * counts[1] + (not true)
        if self._others is not None:
            self._others._learn(matched, true=true)  # noqa: SLF001 (one of the same kind)
