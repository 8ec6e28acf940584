"""Store of earlier responses for prompt lookup, separate for each tenant, with a bound on all tenants' tokens.

The oldest response is dropped first. Only committed token ids are kept, in the memory of the process.
"""

from collections import OrderedDict
from collections.abc import Sequence

from outrider.lookup.suffixes import LEAST_MATCH, SuffixMatch, match_length

_MOST_PLACES = 16  # of one n-gram and tenant, the latest

_Place = tuple[int, int]  # number of a text, and index of the token behind the n-gram


class EarlierTexts:
    """A bounded store. Mutable. The time of a search does not depend on the number of texts."""

    def __init__(self, most_tokens: int) -> None:
        """Begin empty; with 0 ``most_tokens`` nothing is ever kept."""
        self._most_tokens, self._tokens = most_tokens, 0
        self._texts: OrderedDict[int, tuple[str, tuple[int, ...]]] = OrderedDict()  # the oldest first
        self._places: dict[str, dict[tuple[int, ...], list[_Place]]] = {}  # of each tenant
        self._next = 0

    @property
    def tokens(self) -> int:
        return self._tokens

    def add(self, tenant: str, token_ids: Sequence[int]) -> None:
        """Add a complete response. Without a tenant, or if too short or longer than the store, it is not kept."""
        if not tenant or not LEAST_MATCH < len(token_ids) <= self._most_tokens:
            return
        number, text = self._next, tuple(token_ids)
        self._next += 1
        self._texts[number] = tenant, text
        self._tokens += len(text)
        places = self._places.setdefault(tenant, {})
        for at in range(LEAST_MATCH, len(text)):
            found = places.setdefault(text[at - LEAST_MATCH : at], [])
            found.append((number, at))
            del found[:-_MOST_PLACES]
        while self._tokens > self._most_tokens:
            self._forget_oldest()

    def find(self, tenant: str, text: Sequence[int], most_tokens: int) -> SuffixMatch | None:
        """Return what followed the longest match of the text's end in the tenant's texts; of equal ones the latest."""
        places = self._places.get(tenant)
        if places is None or most_tokens < 1:
            return None
        best, followed = 0, tuple[int, ...]()
        for number, at in reversed(places.get(tuple(text[-LEAST_MATCH:]), ())):
            kept = self._texts[number][1]
            matched = match_length(kept, at, text)
            if matched > best:
                best, followed = matched, kept[at : at + most_tokens]
        return SuffixMatch(best, followed) if best else None

    def _forget_oldest(self) -> None:
        number, (tenant, text) = self._texts.popitem(last=False)
        self._tokens -= len(text)
        places = self._places[tenant]
        for at in range(LEAST_MATCH, len(text)):
            run = text[at - LEAST_MATCH : at]
            left = [place for place in places.get(run, ()) if place[0] != number]
            if left:
                places[run] = left
            else:
                places.pop(run, None)
        if not places:
            del self._places[tenant]
