"""Incremental parser of reasoning between two marks: what is between them, and what comes behind.

Line feeds next to the marks belong to neither. Reasoning comes first, or there is none: marks behind it are text.
"""

from collections.abc import Sequence

from outrider.text.tokens import TokenTable
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.marks import FoundMark, Mark, MarkedText, Part, text_of_part
from serve_app.api.openai.reasoning.pieces import Thought, ThoughtMeter


class ThoughtReader:
    """Parser of one choice of a model that reasons between two marks."""

    def __init__(self, thinking: Thinking, left: Opened, table: TokenTable) -> None:
        """``left``: how the prompt leaves the reasoning."""
        self._opens, self._closes = thinking.opens, thinking.closes
        self._answer = None if thinking.answer is None else _Enclosed(*thinking.answer)
        self._ahead, self.over = left is Opened.MAYBE, left is Opened.CLOSED
        self._blanks = list[str]()  # held: before anything, or line feeds that may stand before the closing mark
        self._trims = left is Opened.OPEN  # line feeds behind a mark are left out
        self.thoughts = ThoughtMeter(table if thinking.by_text else None)
        if left is Opened.OPEN:
            self.thoughts.begin(None)

    def push(self, parts: Sequence[Part]) -> list[Thought | Part]:
        """Return the pieces of reasoning, and the parts that come behind it."""
        pieces = list[Thought | Part]()
        for part in parts:
            if self.over:
                pieces += self._said(part)
            else:
                pieces += self._opening(part) if self._ahead else self._thought(part)
        return pieces

    def finish(self) -> list[Thought | Part]:
        """Return what is held."""
        pieces = list[Thought | Part]()
        if blanks := self._take_blanks():
            pieces += [Thought(blanks)] if self.thoughts.open else self._said(blanks)
        held = "" if self._answer is None else self._answer.finish()
        return pieces + ([held] if held else [])

    def _opening(self, part: Part) -> list[Thought | Part]:
        """Blanks, and the opening mark if there is one."""
        if isinstance(part, FoundMark):
            blanks = self._take_blanks()
            if part.mark == self._opens:
                self._ahead, self._trims = False, True
                self.thoughts.begin(part)
                return []
            self.over = True
            return [*self._said(blanks), *self._said(part)]
        self._blanks.append(part)
        self.over = bool(part.strip())
        return self._said(self._take_blanks()) if self.over else []

    def _thought(self, part: Part) -> list[Thought | Part]:
        if isinstance(part, FoundMark) and part.mark == self._closes:
            self.thoughts.end(part)
            self._blanks.clear()
            self.over = self._trims = True
            return []
        text = self._trimmed(text_of_part(part))
        shown = text.rstrip("\n")
        before = self._take_blanks() if shown else ""
        self._blanks.append(text[len(shown) :])
        return [Thought(before + shown)] if shown else []

    def _take_blanks(self) -> str:
        blanks = "".join(self._blanks)
        self._blanks.clear()
        return blanks

    def _trimmed(self, text: str) -> str:
        """Text without line feeds behind a mark."""
        if self._trims:
            text = text.lstrip("\n")
            self._trims = not text
        return text

    def _said(self, part: Part) -> list[Thought | Part]:
        if isinstance(part, FoundMark) and self._answer is None:
            self._trims = self._trims and not part.shown
            return [part]
        text = self._trimmed(text_of_part(part))
        text = text if self._answer is None else self._answer.push(text)
        return [text] if text else []


class _Enclosed:
    """Leaves out the marks around an answer: the first if it begins with it, the last if it ends with it."""

    def __init__(self, opens: str, closes: str) -> None:
        self._opens, self._begun, self._head = opens, False, ""
        self._marked = MarkedText([Mark(closes)])
        self._tail = list[str]()  # the closing mark and blanks behind it

    def push(self, text: str) -> str:
        """Return the text that is certainly part of the answer."""
        if not self._begun:
            self._head += text
            if len(self._head) < len(self._opens) and self._opens.startswith(self._head):
                return ""
            self._begun, text, self._head = True, self._head.removeprefix(self._opens), ""
        return "".join(map(self._kept, self._marked.push(text)))

    def finish(self) -> str:
        """Return the held text."""
        return self._head + "".join(map(self._kept, self._marked.finish()))

    def _kept(self, part: Part) -> str:
        text = text_of_part(part)
        if isinstance(part, str) and not self._tail:
            return text
        if isinstance(part, str) and not text.strip():
            self._tail.append(text)
            return ""
        before = "".join(self._tail)
        self._tail = [] if isinstance(part, str) else [text]
        return before + text if isinstance(part, str) else before
