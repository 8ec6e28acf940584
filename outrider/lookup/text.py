"""Prompt lookup in one response's text: the likely continuation, its survivals, and how many tokens of it to draft."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from operator import mul
from typing import NamedTuple

from outrider.lookup.store import EarlierTexts
from outrider.lookup.suffixes import Suffixes, SuffixMatch

_LENGTHS = (3, 4, 6, 10, 16)  # shortest match of each class of lengths
_FIRST = ((1.0, 1.0), (1.5, 1.0), (3.0, 1.0), (6.0, 1.0), (12.0, 1.0))  # prior counts of each: true, false
_KEPT, _KEPT_BY_ALL = 0.95, 0.995  # share of the counts kept at each token: of one text, of all together
_OTHERS = 3.0  # weight of all texts' experience as a text's prior, in tokens
_KINDS = {length: sum(length >= least for least in _LENGTHS) - 1 for length in range(_LENGTHS[0], _LENGTHS[-1] + 1)}


def kind_of(matched: int) -> int:
    """Return the class of a match's length, which is at least 3."""
    return _KINDS[min(matched, _LENGTHS[-1])]


class Matches:
    """Counts of continuations that came true or not, of one text with all texts' (``others``) as prior. Mutable.

    A token drafted behind a match of n tokens has n matching tokens before it; if it is right, the next has n + 1. So
    the k-th token of a draft has the acceptance learned for matches of length n + k - 1. Learning needs no draft: every
    continuation found is compared with the tokens that were committed there.
    """

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


LEAST_GAIN = 0.01  # least relative gain in tokens/s of a step for a draft to be made at all
_LEAST_SURVIVAL = 0.1  # least survival of a token to be drafted, however cheap rows are


@dataclass(frozen=True, slots=True)
class LookupHistory:
    """Experience of all responses: how often matches came true, and earlier texts. Both fields are mutable."""

    matches: Matches = field(default_factory=Matches)
    earlier: EarlierTexts = field(default_factory=lambda: EarlierTexts(0))


class Continuation(NamedTuple):
    """Tokens that may come next, with their falling survivals."""

    token_ids: tuple[int, ...]
    survivals: tuple[float, ...]


_NONE = Continuation((), ())


class LookupText:
    """The text of one response, prompt included. Mutable."""

    def __init__(self, experience: LookupHistory, tenant: str) -> None:
        """Begin with an empty text; only earlier responses of ``tenant`` are searched."""
        self._suffixes, self._experience, self._tenant = Suffixes(), experience, tenant
        self._matches = Matches(experience.matches)
        self._promised: SuffixMatch | None = None  # the last continuation found, until tokens show if it was right

    @property
    def length(self) -> int:
        return len(self._suffixes.token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append committed tokens, and learn from them whether the last continuation came true."""
        if self._promised is not None and token_ids:
            self._matches.came(self._promised.matched, self._promised.token_ids, token_ids)
            self._promised = None
        self._suffixes.extend(token_ids)

    def find(self, most_tokens: int) -> Continuation:
        """Return a continuation of at most so many tokens: from this text, else from the tenant's earlier ones."""
        found = self._suffixes.find(most_tokens)
        if found is None:
            found = self._experience.earlier.find(self._tenant, self._suffixes.token_ids, most_tokens)
        self._promised = found
        if found is None:
            return _NONE
        survivals = self._matches.survivals(found.matched, len(found.token_ids))
        likely = tuple(takewhile(lambda survival: survival >= _LEAST_SURVIVAL, survivals))
        return Continuation(found.token_ids[: len(likely)], likely)


def tokens_to_draft(survivals: Sequence[float], blocks: float, row_price: float) -> int:
    """Return the number of a chain's tokens with which a step commits most tokens per second.

    Args:
        survivals: of the chain's tokens, falling.
        blocks: in the step; each commits one token of its own.
        row_price: time that one row more adds to a step, as a share of the step.
    """
    return most_per_second(survivals, blocks, lambda tokens: 1.0 + row_price * tokens)


def most_per_second(survivals: Sequence[float], blocks: float, step: Callable[[int], float]) -> int:
    """Return the same for any duration ``step(tokens)`` of a step with so many tokens of the chain, in any unit."""
    best, best_per_s = 0, (1.0 + LEAST_GAIN) * blocks / step(0)
    for tokens, gain in enumerate(accumulate(survivals), start=1):
        per_s = (blocks + gain) / step(tokens)
        if per_s >= best_per_s:
            best, best_per_s = tokens, per_s
    return best
