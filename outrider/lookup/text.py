"""The text of one response for prompt lookup: its likely continuation, and the probability of each token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import NamedTuple

from outrider.lookup.matches import Matches
from outrider.lookup.store import EarlierTexts
from outrider.lookup.suffixes import Suffixes, SuffixMatch

LEAST_GAIN = 0.01  # of the tokens per second, for which a draft gets a token more
_LEAST_SURVIVAL = 0.1  # of the last token drafted, however cheap rows are


@dataclass(frozen=True, slots=True)
class LookupHistory:
    """What many responses have shown, and said; both are mutable."""

    matches: Matches = field(default_factory=Matches)
    earlier: EarlierTexts = field(default_factory=lambda: EarlierTexts(0))


class Continuation(NamedTuple):
    """What may come next, and of each token how likely it is with all before it: falling."""

    token_ids: tuple[int, ...]
    survivals: tuple[float, ...]


_NONE = Continuation((), ())


class LookupText:
    """Of one response, prompt included. Mutable."""

    def __init__(self, experience: LookupHistory, tenant: str) -> None:
        """Begin with nothing; ``tenant`` is whose earlier responses may be looked through."""
        self._suffixes, self._experience, self._tenant = Suffixes(), experience, tenant
        self._matches = Matches(experience.matches)
        self._promised: SuffixMatch | None = None  # what was found last

    @property
    def length(self) -> int:
        return len(self._suffixes.token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        """The text goes on, and shows whether what was found came true."""
        if self._promised is not None and token_ids:
            self._matches.came(self._promised.matched, self._promised.token_ids, token_ids)
            self._promised = None
        self._suffixes.extend(token_ids)

    def find(self, most_tokens: int) -> Continuation:
        """At most so many tokens, of what its end is followed by elsewhere; its own text goes before earlier ones."""
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
    """How many tokens of a chain have a step commit most tokens per second.

    Args:
        survivals: falling; probability of each token that it is accepted with all before it.
        blocks: in the step, each of which brings a token.
        row_price: by so much of itself a row more makes the step longer.
    """
    return most_per_second(survivals, blocks, lambda tokens: 1.0 + row_price * tokens)


def most_per_second(survivals: Sequence[float], blocks: float, step: Callable[[int], float]) -> int:
    """The same, where ``step`` says how long a step with so many tokens of the chain takes, in any unit."""
    best, best_per_s = 0, (1.0 + LEAST_GAIN) * blocks / step(0)
    for tokens, gain in enumerate(accumulate(survivals), start=1):
        per_s = (blocks + gain) / step(tokens)
        if per_s >= best_per_s:
            best, best_per_s = tokens, per_s
    return best
