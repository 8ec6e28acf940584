"""Reader of a choice's message: its reasoning, its text and its tool calls, in whatever form the model writes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.contracts.requests import TagPlace
from outrider.text.tokens import TokenTable
from serve_app.api.openai.reasoning.channels import ChannelReader
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.marks import FoundMark, Mark, MarkedText, Part, Text
from serve_app.api.openai.reasoning.pieces import MessageReader, Piece, Said, Thought, ThoughtMeter
from serve_app.api.openai.reasoning.reader import ThoughtReader
from serve_app.api.openai.tools.formats.base import CallReader, Tool
from serve_app.api.openai.tools.formats.registry import FORMS

_SLICE_CHARS = 512


@dataclass(frozen=True, slots=True)
class MessageForm:
    """How the answers to one request are read.

    Attributes:
        thinking: how the model marks its reasoning; None: it has none.
        left: how the prompt leaves the reasoning.
        tools: form of tool calls; "": none are read.
        shows_thoughts: whether reasoning is told.
        offered: the tools.
        tool_marks: marks of the form of tool calls.
        several: whether calls behind the first are told.
    """

    thinking: Thinking | None = None
    left: Opened = Opened.CLOSED
    tools: str = ""
    shows_thoughts: bool = True
    offered: tuple[Tool, ...] = ()
    tool_marks: tuple[Mark, ...] = ()
    several: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether all text is the answer."""
        return self.thinking is None and not self.tools

    def reader(self, table: TokenTable) -> MessageReader:
        """A reader of one choice."""
        if self.thinking is not None and self.thinking.channels:
            return ChannelReader(self.thinking, table, calls=bool(self.tools))
        thoughts = None if self.thinking is None else ThoughtReader(self.thinking, self.left, table)
        written = {mark.text: mark for mark in self.tool_marks}
        calls = FORMS[self.tools].reader(self.offered, written) if self.tools else None
        marks = () if self.thinking is None or self.left is Opened.CLOSED else self.thinking.marks
        tool_marks = tuple(mark for mark in self.tool_marks if mark.special)
        marked = MarkedText((*marks, *tool_marks)) if marks or tool_marks else None
        return _LayeredReader(marked, thoughts, calls, keeps_marks=bool(tool_marks))


PLAIN = MessageForm()


class _LayeredReader:
    """Reasoning first, then text with tool calls."""

    def __init__(
        self, marked: MarkedText | None, thoughts: ThoughtReader | None, calls: CallReader | None, *, keeps_marks: bool
    ) -> None:
        """``keeps_marks``: some have a meaning behind the reasoning, too."""
        self._marked, self._reasoning, self._keeps_marks = marked, thoughts, keeps_marks
        self._tools, self._at = calls, 0
        self.thoughts = ThoughtMeter() if thoughts is None else thoughts.thoughts

    def push(self, text: str, places: Sequence[TagPlace] = ()) -> list[Piece]:
        """Return the pieces that this text completes."""
        begin, self._at = self._at, self._at + len(text)
        if self._marked is None:
            return self._behind([Text(text, begin)] if text else [])
        pieces = self._behind(self._marked.push(text, places))
        if self._reasoning is not None and self._reasoning.over and not self._keeps_marks:
            marked, self._marked = self._marked, None  # no mark means anything any more
            pieces += self._behind(marked.finish())
        return pieces

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        pieces = [] if self._marked is None else self._behind(self._marked.finish())
        pieces += self._read([] if self._reasoning is None else self._reasoning.finish())
        return pieces + ([] if self._tools is None else list(self._tools.finish()))

    def _behind(self, parts: Sequence[Part]) -> list[Piece]:
        return self._read(parts if self._reasoning is None else self._reasoning.push(parts))

    def _read(self, parts: Iterable[Thought | Part]) -> list[Piece]:
        pieces = list[Piece]()
        for part in parts:
            if isinstance(part, Thought):
                pieces.append(part)
            elif self._tools is None:
                pieces += [Said(part.shown, at=part.begin)] if part.shown else []
            elif isinstance(part, FoundMark):
                pieces += self._tools.push(part)
            else:
                for at in range(0, len(part.shown), _SLICE_CHARS):  # readers copy what they have not read yet
                    pieces += self._tools.push(Text(part.shown[at : at + _SLICE_CHARS], part.begin + at))
        return pieces
