"""What a model's text consists of, as readers return it."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outrider.contracts.requests import TagPlace
from outrider.text.tokens import TextOffsets, TokenTable
from serve_app.api.openai.reasoning.marks import FoundMark


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of reasoning. ``begins``: the model has begun a message of its own with it."""

    text: str
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer; ``begins`` as of reasoning. ``at``: where, in characters of the response."""

    text: str
    begins: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Start of the next call; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the current call's arguments, in JSON."""

    text: str


Piece = Thought | Said | CallBegun | CallArguments


class MessageReader(Protocol):
    """Incremental parser of one choice. Joined, its pieces are the same however the text is split."""

    def push(self, text: str, places: Sequence[TagPlace] = ()) -> list[Piece]:
        """Return the pieces that this text completes; ``places``: of marks whose text is complete by now."""
        ...

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        ...

    @property
    def thoughts(self) -> "ThoughtMeter": ...


class ThoughtMeter:
    """Counts the tokens of a response's reasoning, its marks included."""

    def __init__(self, table: TokenTable | None = None) -> None:
        """``table``: to find tokens of marks that are text; None: all marks are tokens."""
        self._offsets = None if table is None else TextOffsets(table)
        self._starts = list[int]()  # in characters, by token, of those so far
        self._ended, self._begun = 0, 0  # tokens of ended stretches; the open one's first token
        self.open = False

    def made(self, token_ids: Sequence[int]) -> None:
        """Note tokens, before the text that they make visible is read."""
        if self._offsets is not None:
            self._starts += map(self._offsets.next, token_ids)

    def begin(self, found: FoundMark | None) -> None:
        """Begin with a mark, or with the response's first token."""
        self.open, self._begun = True, 0 if found is None else self._index(found)

    def end(self, found: FoundMark) -> None:
        """End behind a mark."""
        self.open, self._ended = False, self._ended + self._index(found, behind=True) - self._begun

    def tokens(self, total: int) -> int:
        """Return how many of a response's ``total`` tokens are reasoning."""
        return self._ended + (max(total - self._begun, 0) if self.open else 0)

    def _index(self, found: FoundMark, *, behind: bool = False) -> int:
        """Return a mark's first token, or the one behind it."""
        if found.index is not None:
            return found.index + behind
        if behind:
            return bisect_left(self._starts, found.begin + len(found.shown))
        return max(bisect_right(self._starts, found.begin) - 1, 0)
