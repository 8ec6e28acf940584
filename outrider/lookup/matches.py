"""How often continuations of a match were accepted, by the length of the match: the confidence of prompt lookup.

A token drafted behind a match of n tokens has n before it that were right; if it comes true the next has n + 1. So a
draft's tokens are of longer and longer matches, and what is known of those says how likely each is.

Nothing has to be drafted to learn: every continuation that was found is held against what was committed there.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

_LENGTHS = (3, 4, 6, 10, 16)  # least tokens of a kind of match
_FIRST = ((1.0, 1.0), (1.5, 1.0), (3.0, 1.0), (6.0, 1.0), (12.0, 1.0))  # came true and did not, as if they had
_KEPT, _KEPT_BY_ALL = 0.95, 0.995  # of what is known, at each token
_OTHERS = 3.0  # tokens that what others show is worth
_KINDS = {length: sum(length >= least for least in _LENGTHS) - 1 for length in range(_LENGTHS[0], _LENGTHS[-1] + 1)}


def kind_of(matched: int) -> int:
    """Which kind a match of so many tokens is, 3 at least."""
    return _KINDS[min(matched, _LENGTHS[-1])]


class Matches:
    """What came true. Mutable; of one text, on top of that of all (``others``)."""

    def __init__(self, others: "Matches | None" = None) -> None:
        """Begin with others' experience, or with a guess."""
        self._others = others
        self._counts = [[0.0, 0.0] if others is not None else list(first) for first in _FIRST]

    def likely(self, matched: int) -> float:
        """Probability of the token behind a match."""
        true, false = self._counts[kind_of(matched)]
        if self._others is None:
            return true / (true + false)
        return (true + _OTHERS * self._others.likely(matched)) / (true + false + _OTHERS)

    def survivals(self, matched: int, tokens: int) -> tuple[float, ...]:
        """Of so many tokens behind a match, each with all before it."""
        return tuple(accumulate((self.likely(matched + i) for i in range(tokens)), mul))

    def came(self, matched: int, drafted: Sequence[int], committed: Sequence[int]) -> None:
        """What a match promised, and what was committed there: learned up to the first token that differs."""
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
