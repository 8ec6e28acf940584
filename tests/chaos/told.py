"""What a client saw of a stream, and what it should have seen. Frozen data between clients and the judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class End(StrEnum):
    """How a stream ended."""

    WHOLE = "whole"
    REFUSED = "refused"  # a status other than 200
    FAILED = "failed"  # an error event
    MALFORMED = "malformed"  # what its API has no word for
    BROKEN = "broken"  # its connection
    HUNG_UP = "hung_up"  # by its client, as planned
    SILENT = "silent"  # nothing came for longer than anything may take


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event said of one choice."""

    at_s: float
    choice: int
    text: str
    names: tuple[str, ...]  # of its tokens, as log-probabilities have them
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One stream. Times are of the clock that faults are timed by.

    Attributes:
        status: of HTTP; None if there was none.
        code: of the error, in OpenAI's form; None where there is none in that form.
        behind: events behind the one that says that the stream is done.
    """

    end: End
    began_at_s: float
    ended_at_s: float
    pieces: tuple[Piece, ...] = ()
    status: int | None = None
    code: str | None = None
    detail: str = ""
    usage: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    behind: int = 0

    def names(self, choice: int) -> tuple[str, ...]:
        """All tokens of a choice."""
        return tuple(name for piece in self.pieces if piece.choice == choice for name in piece.names)

    def text(self, choice: int) -> str:
        """All text of a choice."""
        return "".join(piece.text for piece in self.pieces if piece.choice == choice)

    def finishes(self, choice: int) -> list[str]:
        """The reasons for which a choice ended: one."""
        return [piece.finish for piece in self.pieces if piece.choice == choice and piece.finish is not None]


@dataclass(frozen=True, slots=True)
class Expected:
    """A choice as the target alone gives it.

    Attributes:
        names: of tokens; behind a stop string there may be some that are not shown.
        text: that is shown.
        finish: why it ends.
        usage: tokens by kind, where they must be these.
    """

    names: tuple[str, ...]
    text: str
    finish: str
    usage: Mapping[str, int] | None = None
