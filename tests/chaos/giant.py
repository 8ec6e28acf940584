"""A device whose replies are of no honest size.

Ray imports an actor's module in each process that calls it: this one imports no more than fleet and coordinators have.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from outrider.wire.replies import Answer, DrafterCard, DrafterHoldings, Reply, plain

LARGE_BYTES = 2**26
_OPENS_IN_S = 8.0  # meanwhile the fleet asks what it holds; behind that a coordinator finds out that it drafts nothing


@dataclass(frozen=True, slots=True)
class Case:
    """One method's reply: so many names (a list of generations), or so many bytes behind an answer's head."""

    method: str
    items: int | None  # None: ``LARGE_BYTES`` of an answer

    def data(self) -> bytes:
        """The reply."""
        if self.items is None:
            return plain(Answer(bytes(LARGE_BYTES), 0.25))
        return plain(DrafterHoldings(()))[:-2] + b"[" + b",".join([b'"generation"'] * self.items) + b"]"

    def __str__(self) -> str:
        """As a report names it."""
        return f"{self.method}, {'64 MiB' if self.items is None else f'{self.items} names'}"


class Giant:
    """Runs under a drafter's name; all but one method answer as a drafter does that never drafts."""

    def __init__(self, card: DrafterCard, case: Case) -> None:
        self._card, self._case, self._data = card, case, case.data()

    async def which(self) -> Case:
        """Give itself away."""
        return self._case

    async def reply(self, method: str, *arguments: Any) -> bytes:
        """Too much of one method's."""
        if method == self._case.method:
            return self._data
        if method == "open" and self._case.method == "held":
            await asyncio.sleep(_OPENS_IN_S)
        if method == "probe":
            return plain(Answer(bytes(arguments[1]), 0.0))
        if method == "exchange":  # it has never heard of the generation
            return plain(Answer(b"", 0.0))
        replies: dict[str, Reply] = {"card": self._card, "held": DrafterHoldings(())}
        return plain(replies.get(method))
