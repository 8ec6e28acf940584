"""Incremental parser of harmony, gpt-oss's form: messages to channels, which are reasoning, calls or the answer.

``<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>``; a call is
``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>``. What has no header is text.
Source: openai/harmony, docs/format.md.
"""

import re
from collections.abc import Sequence

from outrider.contracts.requests import TagPlace
from outrider.text.tokens import TokenTable
from serve_app.api.openai.reasoning.families import Thinking
from serve_app.api.openai.reasoning.marks import FoundMark, MarkedText, Part, Text, end_of
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said, Thought, ThoughtMeter

_MOST_HEAD_CHARS = 512
_ROLE = "assistant"
_CHANNEL, _RECIPIENT = re.compile(r"<\|channel\|>\s*(\w+)"), re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_BEGINS = ("<|start|>", "<|channel|>")
_MESSAGE = "<|message|>"


class ChannelReader:
    """Parser of one choice of a model that writes harmony."""

    def __init__(self, thinking: Thinking, table: TokenTable, *, calls: bool) -> None:
        """``calls``: tools may be called; else calls are text."""
        self._marked, self._calls = MarkedText(thinking.marks), calls
        self._head: list[Part] | None = []  # of the message that begins; None: within a message
        self._head_chars = 0
        self._kind = "said"  # of the message: said, thought, call (not begun yet) or arguments
        self._begins = False  # whether nothing of the message was told
        self._name, self._blanks = "", list[str]()
        self.thoughts = ThoughtMeter(table if thinking.by_text else None)

    def push(self, text: str, places: Sequence[TagPlace] = ()) -> list[Piece]:
        """Return the pieces that this text completes."""
        return [piece for part in self._marked.push(text, places) for piece in self._read(part)]

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        pieces = [piece for part in self._marked.finish() for piece in self._read(part)]
        if self._head is None:
            return pieces + self._ended()
        cut = any(isinstance(part, FoundMark) and part.mark.text in _BEGINS for part in self._head)
        return pieces if cut else pieces + self._no_head()

    def _read(self, part: Part) -> list[Piece]:
        if not isinstance(part, FoundMark):
            return self._body(part) if self._head is None else self._heading(part)
        text = part.mark.text
        if text in _ENDS or text in _BEGINS:
            return self._border(part)
        if self._head is None:
            return self._body(part)
        return self._begun() if text == _MESSAGE else self._heading(part)

    def _border(self, part: FoundMark) -> list[Piece]:
        """A mark that ends a message, or belongs to the next one's header."""
        within = self._head is None
        if not within and part.mark.text == "<|channel|>":
            return self._heading(part)
        pieces = self._ended() if within else self._no_head()
        if within and self.thoughts.open:
            self.thoughts.end(part)
        self._head, self._head_chars = [] if part.mark.text in _ENDS else [part], 0
        return pieces

    def _heading(self, part: Part) -> list[Piece]:
        assert self._head is not None
        self._head.append(part)
        self._head_chars += len(part.shown)
        bare = all(isinstance(each, Text) or each.mark.text == "<|start|>" for each in self._head)
        if self._head_chars <= _MOST_HEAD_CHARS and not (bare and not self._may_be_head()):
            return []
        return self._no_head(ended=False)

    def _may_be_head(self) -> bool:
        text = "".join(each.shown for each in self._head or () if isinstance(each, Text)).lstrip()
        return _ROLE.startswith(text) or text.startswith(_ROLE) or "to=".startswith(text[:3])

    def _no_head(self, *, ended: bool = True) -> list[Piece]:
        """Show what is no header, and read on as text unless that has ended."""
        head = self._head or []
        text = "".join(part.shown for part in head)
        self._head, self._kind, self._begins = [] if ended else None, "said", False
        return [Said(text, at=head[0].begin)] if text.strip() not in ("", _ROLE) else []

    def _begun(self) -> list[Piece]:
        head, self._head, self._begins = self._head or [], None, True
        written = "".join(each.shown if isinstance(each, Text) else each.mark.text for each in head)
        channel, recipient = _CHANNEL.search(written), _RECIPIENT.search(written)
        self._name = recipient[1] if recipient is not None and self._calls else ""
        is_thought = channel is not None and channel[1] == "analysis"
        self._kind = "call" if self._name else "thought" if is_thought else "said"
        if self._kind == "thought":
            self.thoughts.begin(next((each for each in head if isinstance(each, FoundMark)), None))
        return []

    def _body(self, part: Part) -> list[Piece]:
        text = part.shown
        if self._kind == "call":
            self._blanks.append(text)
            if not text.strip():
                return []
            text = "".join(self._blanks).lstrip()
            self._blanks.clear()
            self._kind = "arguments" if text.startswith("{") else "said"
            if self._kind == "arguments":
                return [CallBegun(self._name), CallArguments(text)]
        if not text:
            return []
        if self._kind == "arguments":
            return [CallArguments(text)]
        begins, self._begins = self._begins, False
        return [Thought(text, begins) if self._kind == "thought" else Said(text, begins, end_of(part) - len(text))]

    def _ended(self) -> list[Piece]:
        """A call without arguments has none."""
        called, self._kind = self._kind == "call", "said"
        self._blanks.clear()
        return [CallBegun(self._name), CallArguments("{}")] if called else []
