"""Reader of a choice's message: its reasoning, its text and its tool calls, in whatever form the model writes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.contracts.requests import TagPlace
from outrider.text.tokens import TokenTable
from serve_app.api.openai.reasoning.channels import ChannelReader
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.marks import MarkedText, Part, text_of_part
from serve_app.api.openai.reasoning.pieces import MessageReader, Piece, Said, Thought, ThoughtMeter
from serve_app.api.openai.reasoning.reader import ThoughtReader
from serve_app.api.openai.tools.reader import ToolReader


@dataclass(frozen=True, slots=True)
class MessageForm:
    """How the answers to one request are read.

    Attributes:
        thinking: how the model marks its reasoning; None: it has none.
        left: how the prompt leaves the reasoning.
        tools: form of tool calls; "": none are read.
        shows_thoughts: whether reasoning is told.
    """

    thinking: Thinking | None = None
    left: Opened = Opened.CLOSED
    tools: str = ""
    shows_thoughts: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether all text is the answer."""
        return self.thinking is None and not self.tools

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """Tokens whose places are needed."""
        return () if self.thinking is None else self.thinking.tag_ids

    def reader(self, table: TokenTable) -> MessageReader:
        """A reader of one choice."""
        if self.thinking is not None and self.thinking.channels:
            return ChannelReader(self.thinking, table, calls=bool(self.tools))
        thoughts = None if self.thinking is None else ThoughtReader(self.thinking, self.left, table)
        marks = () if self.thinking is None or self.left is Opened.CLOSED else self.thinking.marks
        return _LayeredReader(MarkedText(marks) if marks else None, thoughts, self.tools)


PLAIN = MessageForm()


class _LayeredReader:
    """Reasoning first, then text with tool calls."""

    def __init__(self, marked: MarkedText | None, thoughts: ThoughtReader | None, tools: str) -> None:
        self._marked, self._reasoning = marked, thoughts
        self._tools = ToolReader(tools) if tools else None
        self.thoughts = ThoughtMeter() if thoughts is None else thoughts.thoughts

    def push(self, text: str, places: Sequence[TagPlace] = ()) -> list[Piece]:
        """Return the pieces that this text completes."""
        if self._marked is None:
            return self._behind([text] if text else [])
        pieces = self._behind(self._marked.push(text, places))
        if self._reasoning is not None and self._reasoning.over:
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
            elif text := text_of_part(part):
                pieces += [Said(text)] if self._tools is None else self._tools.push(text)
        return pieces
