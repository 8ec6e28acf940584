"""Find the longest earlier match of a text's last tokens, and the tokens that followed it there.

As in prompt lookup decoding and SuffixDecoding. An index of n-grams bounds the number of places to compare.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

LEAST_MATCH = 3  # length of the indexed n-grams: the shortest match
_MOST_COMPARED = 32  # longest match that is measured; a longer one says no more
_MOST_PLACES = 16  # of one n-gram, the latest


class SuffixMatch(NamedTuple):
    """What followed the longest match at its latest place; ``matched``: length of the match, at most 32."""

    matched: int
    token_ids: tuple[int, ...]


class Suffixes:
    """Index of one growing text. Mutable. The cost of a token does not depend on the length of the text."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places = defaultdict[tuple[int, ...], list[int]](list)  # behind each run of tokens, the latest last

    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens and index the n-grams before them."""
        tokens, places = self._tokens, self._places
        first = max(len(tokens), LEAST_MATCH)
        tokens.extend(token_ids)
        # The text's last n-gram is not indexed yet, as no token follows it.
        runs = zip(*(tokens[first - LEAST_MATCH + i : -1] for i in range(LEAST_MATCH)), strict=False)
        for place, run in enumerate(runs, start=first):
            found = places[run]
            found.append(place)
            if len(found) > _MOST_PLACES:
                del found[0]

    @property
    def token_ids(self) -> Sequence[int]:
        """The whole text, by reference; do not change it."""
        return self._tokens

    def find(self, most_tokens: int) -> SuffixMatch | None:
        """Return the continuation of the longest earlier match, ``most_tokens`` long; None without a match."""
        tokens = self._tokens
        best, at = 0, 0
        for place in reversed(self._places.get(tuple(tokens[-LEAST_MATCH:]), ())):
            matched = match_length(tokens, place, tokens)
            if matched > best:
                best, at = matched, place
        if not best or most_tokens < 1:
            return None
        period = len(tokens) - at  # a continuation that reaches the text's end repeats from the match on
        return SuffixMatch(best, tuple(tokens[at + i % period] for i in range(most_tokens)))


def match_length(text: Sequence[int], at: int, tail: Sequence[int]) -> int:
    """Count the tokens before ``at`` that equal those at the end of ``tail``; the first ``LEAST_MATCH`` do."""
    count, most = LEAST_MATCH, min(at, len(tail), _MOST_COMPARED)
    while count < most and text[at - 1 - count] == tail[-1 - count]:
        count += 1
    return count
