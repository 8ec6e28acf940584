"""Prompt lookup in one response's text: the likely continuation, its survivals, and how many tokens of it to draft."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import NamedTuple

from outrider.lookup.matches import Matches
from outrider.lookup.store import EarlierTexts
from outrider.lookup.suffixes import Suffixes, SuffixMatch

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
