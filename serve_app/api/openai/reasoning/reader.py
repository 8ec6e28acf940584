"""Incremental parser of reasoning between two marks: what is between them, and what comes behind.

Line feeds next to the marks belong to neither. Reasoning comes first, or there is none: marks behind it are text.
"""

from collections.abc import Sequence

from outrider.text.tokens import TokenTable
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.marks import FoundMark, Mark, MarkedText, Part, Text, end_of
from serve_app.api.openai.reasoning.pieces import Thought, ThoughtMeter


class ThoughtReader:
    """Parser of one choice of a model that reasons between two marks."""

    def __init__(self, thinking: Thinking, left: Opened, table: TokenTable) -> None:
        """``left``: how the prompt leaves the reasoning."""
        self._opens, self._closes = thinking.opens, thinking.closes
        self._answer = None if thinking.answer is None else _Enclosed(*thinking.answer)
        self._ahead, self.over = left is Opened.MAYBE, left is Opened.CLOSED
        self._blanks = list[Text]()  # held: before anything, or line feeds that may stand before the closing mark
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
        if (blanks := self._take_blanks()).shown:
            pieces += [Thought(blanks.shown)] if self.thoughts.open else self._said(blanks)
        return pieces if self._answer is None else [*pieces, *self._answer.finish()]

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
        self.over = bool(part.shown.strip())
        return self._said(self._take_blanks()) if self.over else []

    def _thought(self, part: Part) -> list[Thought | Part]:
        if isinstance(part, FoundMark) and part.mark == self._closes:
            self.thoughts.end(part)
            self._blanks.clear()
            self.over = self._trims = True
            return []
        text = self._trimmed(part)
        shown = text.shown.rstrip("\n")
        before = self._take_blanks().shown if shown else ""
        self._blanks.append(Text(text.shown[len(shown) :], text.begin + len(shown)))
        return [Thought(before + shown)] if shown else []

    def _take_blanks(self) -> Text:
        blanks, self._blanks = self._blanks, []
        return Text("".join(each.shown for each in blanks), blanks[0].begin if blanks else 0)

    def _trimmed(self, part: Part) -> Text:
        """Text without line feeds behind a mark."""
        shown = part.shown
        if self._trims:
            shown = shown.lstrip("\n")
            self._trims = not shown
        return Text(shown, end_of(part) - len(shown))

    def _said(self, part: Part) -> list[Thought | Part]:
        if isinstance(part, FoundMark) and self._answer is None:
            self._trims = self._trims and not part.shown
            return [part]
        text = self._trimmed(part)
        if not text.shown:
            return []
        return [text] if self._answer is None else [*self._answer.push(text)]


class _Enclosed:
    """Leaves out the marks around an answer: the first if it begins with it, the last if it ends with it."""

    def __init__(self, opens: str, closes: str) -> None:
        self._opens, self._begun, self._head = opens, False, ""
        self._end = 0  # of what was read
        self._marked = MarkedText([Mark(closes)])
        self._tail = list[Part]()  # the closing mark and blanks behind it

    def push(self, text: Text) -> list[Text]:
        """Return the text that is certainly part of the answer."""
        shown, self._end = text.shown, end_of(text)
        if not self._begun:
            self._head += shown
            if len(self._head) < len(self._opens) and self._opens.startswith(self._head):
                return []
            self._begun, shown, self._head = True, self._head.removeprefix(self._opens), ""
        return self._kept(self._marked.push(shown, begin=self._end - len(shown)))

    def finish(self) -> list[Text]:
        """Return the held text."""
        head = [Text(self._head, self._end - len(self._head))] if self._head else []
        return head + self._kept(self._marked.finish())

    def _kept(self, parts: Sequence[Part]) -> list[Text]:
        kept = list[Part]()
        for part in parts:
            if isinstance(part, FoundMark):
                kept += self._tail
                self._tail = [part]
            elif self._tail and not part.shown.strip():
                self._tail.append(part)
            else:
                kept += [*self._tail, part]
                self._tail = []
        return [Text(part.shown, part.begin) for part in kept]
