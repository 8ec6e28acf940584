"""Drafts of one response that are looked up in what it says already: how many tokens of a match, by what came true."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from outrider.lookup.suffixes import Suffixes

LOOKUP = "lookup"  # in the place of a protocol's name, for those who count
_LONG_MATCH = 6
_FIRST = ((1.0, 1.0), (4.0, 1.0))  # tokens that came true and did not, as if they had: of short matches, and of long
_KEPT = 0.9  # of what is known, at each verdict
_WORTH = 0.3  # least probability of the last token drafted
_TRIED_AGAIN = 16  # matches later, where one token is not worth it any more
_LIKELY = 0.5  # to come true as a whole: then the next draft is worth waiting for


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A draft.

    Attributes:
        survivals: as ``VerifyTerms.survivals``.
        long: it goes on behind a long match.
    """

    token_ids: tuple[int, ...]
    survivals: tuple[float, ...]
    long: bool

    @property
    def likely(self) -> bool:
        """Whether all of it should come true."""
        return self.survivals[-1] >= _LIKELY


class Lookup:
    """The text of one response, prompt included, and what its matches were worth. Mutable."""

    def __init__(self, prompt_ids: Sequence[int], most_tokens: int) -> None:
        """Begin with its prompt; drafts have ``most_tokens`` at most."""
        self._suffixes, self._most_tokens = Suffixes(), most_tokens
        self._suffixes.extend(prompt_ids)
        self._known_tokens = 0  # of the response
        self._verdicts = [list(first) for first in _FIRST]
        self._passed_over = 0

    def draft(self, output_ids: Sequence[int], room: int) -> LookedUp | None:
        """What may come behind what is committed, at most ``room`` tokens; None if nothing is known, or worth it."""
        self._suffixes.extend(output_ids[self._known_tokens :])
        self._known_tokens = len(output_ids)
        found = self._suffixes.find(min(room, self._most_tokens))
        if found is None:
            return None
        long = found.matched >= _LONG_MATCH
        true, false = self._verdicts[long]
        each = true / (true + false)
        worth = int(log(_WORTH) / log(each)) if each > _WORTH else 0
        if worth == 0:
            self._passed_over += 1
            worth = self._passed_over % _TRIED_AGAIN == 0
        token_ids = found.token_ids[:worth]
        return LookedUp(token_ids, tuple(each**n for n in range(1, len(token_ids) + 1)), long) if token_ids else None

    def learn(self, draft: LookedUp, accepted_tokens: int, *, rejected: bool) -> None:
        """So many tokens of a draft came true, and the next did not, if one was ``rejected``."""
        verdicts = self._verdicts[draft.long]
        verdicts[0] = _KEPT * verdicts[0] + accepted_tokens
        verdicts[1] = _KEPT * verdicts[1] + rejected
