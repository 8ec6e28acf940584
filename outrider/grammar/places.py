"""Lines and columns of what is wrong with a grammar, both from 1, in the text that the user wrote."""

import re
from bisect import bisect_right
from dataclasses import dataclass

_AT = re.compile(r"(?:at )?(\d+)\((\d+)\): ([^\n]*)")  # how the library's messages about rules begin
_IN_DIRECTIVE = re.compile(r'failed to parse "(%\w+)": (.*) at line (\d+) column (\d+)')
_EXPRESSION = re.compile(r"regex parse error:\n {4}[^\n]*\n {4}( *)\^+[^\n]*\nerror: ([^\n]*)")


class GrammarSyntaxError(ValueError):
    """The message begins with line and column."""

    def __init__(self, text: str, at: int, needed: str) -> None:
        found = repr(text[at : at + 20].partition("\n")[0]) if at < len(text) else "the end"
        super().__init__(f"{place(text, at)}: needs {needed}, found {found}")


def place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Rules, some pieces of which were replaced."""

    text: str
    given: str
    begins: tuple[int, ...] = ()  # of replaced pieces in ``text``
    pieces: tuple[tuple[int, int, int], ...] = ()  # of each: its end in ``text``, its beginning and end in ``given``

    def explained(self, fault: str) -> str:
        """Return the library's message with line and column of the given text, as far as it has a place at all."""
        if found := _AT.match(fault):
            at = self._given_at(_offset(self.text, 0, int(found[1]), int(found[2])))
            expression = _EXPRESSION.search(fault)
            said = found[3] + (f" {expression[2]}" if expression else "")
        elif (found := _IN_DIRECTIVE.match(fault)) and found[1] in self.given:
            begins = self.given.index(found[1]) + len(found[1])
            at, said = _offset(self.given, begins, int(found[3]), int(found[4])), f"{found[1]}: {found[2]}"
        else:
            return fault
        return f"{place(self.given, at)}: {said}"

    def _given_at(self, at: int) -> int:
        index = bisect_right(self.begins, at) - 1
        if index < 0:
            return at
        end, given_begin, given_end = self.pieces[index]
        return given_begin if at < end else given_end + at - end


def explained_expression(pattern: str, widths: list[int], fault: str) -> str:
    """Return the library's message about a regular expression, with a place in it.

    ``widths``: characters that the library shows for each of the pattern's.
    """
    found = _EXPRESSION.search(fault)
    if found is None:
        return fault
    at, shown = 0, len(found[1])
    while at < len(pattern) and shown >= widths[at]:
        shown -= widths[at]
        at += 1
    return f"{place(pattern, at)}: {found[2]}"


def _offset(text: str, begins: int, line: int, column: int) -> int:
    """Return where a line and column are, counted from ``begins``."""
    for _ in range(line - 1):
        begins = text.find("\n", begins) + 1 or len(text)
    return min(begins + column - 1, len(text))
