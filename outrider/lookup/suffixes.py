"""Find the longest earlier match of a text's last tokens, and what followed it.

As in prompt lookup decoding and SuffixDecoding; no model, no device, no link.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

LEAST_MATCH = 3  # tokens that have to be the same
MOST_COMPARED = 32  # a longer match says no more
_MOST_PLACES = 16  # of one beginning, the latest


class SuffixMatch(NamedTuple):
    """What followed the longest match, of its latest place; ``matched`` tokens are the same, of 32 at most."""

    matched: int
    token_ids: tuple[int, ...]


class Suffixes:
    """One growing text. Mutable; a token costs the same whatever went before."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places: defaultdict[tuple[int, ...], list[int]] = defaultdict(
            list
        )  # behind each run of tokens, the latest last

    def extend(self, token_ids: Sequence[int]) -> None:
        """The text goes on."""
        tokens, places = self._tokens, self._places
        first = max(len(tokens), LEAST_MATCH)
        tokens.extend(token_ids)
        # The end itself has no place yet: nothing is behind it.
        runs = zip(*(tokens[first - LEAST_MATCH + i : -1] for i in range(LEAST_MATCH)), strict=False)
        for place, run in enumerate(runs, start=first):
            found = places[run]
            found.append(place)
            if len(found) > _MOST_PLACES:
                del found[0]

    @property
    def token_ids(self) -> Sequence[int]:
        """All of it, not to be changed."""
        return self._tokens

    def find(self, most_tokens: int) -> SuffixMatch | None:
        """What may come next, at most so many tokens; None if the text has never ended like this."""
        tokens = self._tokens
        best, at = 0, 0
        for place in reversed(self._places.get(tuple(tokens[-LEAST_MATCH:]), ())):
            matched = self._matched(place)
            if matched > best:
                best, at = matched, place
        if not best or most_tokens < 1:
            return None
        period = len(tokens) - at  # what follows may run into the text's end: then it says the same again
        return SuffixMatch(best, tuple(tokens[at + i % period] for i in range(most_tokens)))

    def _matched(self, place: int) -> int:
        tokens, count = self._tokens, LEAST_MATCH
        most = min(place, MOST_COMPARED)
        while count < most and tokens[place - 1 - count] == tokens[-1 - count]:
            count += 1
        return count
