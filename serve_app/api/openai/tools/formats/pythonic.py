"""Calls as a list of Python's: ``[f(a=1), g(b="x")]``, as Llama 4 and Llama 3.2 write them.

An answer that begins with such a list is read once that is whole; what is none stays text.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.contracts.errors import ParameterError
from outrider.grammar.texts import literal
from serve_app.api.openai.reasoning.marks import Part, end_of
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said
from serve_app.api.openai.tools.formats.base import CallReader, Marks, NoHead, Tool, in_json, sequence
from serve_app.api.openai.tools.formats.parameters import (
    bounded,
    check_object,
    json_symbol,
    properties_of,
    required_of,
    takes_any,
    types_of,
)

_NAME = re.compile(r"[\w.-]{1,256}")
_BEGINS = re.compile(r"\s*\[\s*[\w.-]{1,256}\(")
_MAY_BEGIN = re.compile(r"\s*(?:\[\s*(?:[\w.-]{1,256})?)?")
_MARK = re.compile(r"""[\\"'()\[\]{}]""")
_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_MOST_DEPTH = 64
_MOST_HEAD_CHARS = 512  # in front of the first call's bracket
_ANY_PARAMETER = '/[A-Za-z_][A-Za-z0-9_]{0,63}=/ (%json {} | "True" | "False" | "None")'


class Pythonic(NoHead):
    marks: tuple[str, ...] = ()
    between = ", "
    trigger = None
    example = "[function_name(parameter=value)]"

    def is_in(self, template: str) -> bool:
        """Whether a chat template uses it."""
        return "<|python_start|>" in template or "[func_name1(" in template

    def written(self, name: str, arguments: Any) -> str:
        """A call as the model writes it, in a list of one."""
        given = arguments if isinstance(arguments, dict) else {}
        return f"[{name}({', '.join(f'{key}={_in_python(value)}' for key, value in given.items())})]"

    def rules(self, tools: Sequence[Tool], marks: Marks, *, several: bool) -> list[str]:  # noqa: ARG002 (interface)
        """Rules of one call, or of several."""
        rules = sequence(tools, literal(", "), several=several)
        rules[0] = f'calls: "[" {rules[0].removeprefix("calls: ")} "]"'
        return rules + bounded(rule for i, tool in enumerate(tools) for rule in _rules(i, tool))

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:  # noqa: ARG002 (interface)
        """A reader of one choice."""
        return _PythonicReader()


def _rules(i: int, tool: Tool) -> Iterator[str]:
    """Rules of a call, and of its parameters in their order: ``first`` before any was written, ``rest`` behind one."""
    check_object(tool)
    yield f"call_{i}: {literal(tool.name + '(')} first_{i}_0 {literal(')')}"
    schemas, required = properties_of(tool), required_of(tool)
    for j, (name, schema) in enumerate(schemas.items()):
        if not _NAME.fullmatch(name):
            raise ParameterError(f"tools.{tool.name}.function.parameters", "names of letters, digits, _, - and .", name)
        word = types_of(tool, schema) == {"boolean"} and set(schema) <= {"type", "description", "default", "title"}
        yield f"value_{i}_{j}: {literal(name + '=')} " + ('("True" | "False")' if word else json_symbol(tool, schema))
        needed = name in required
        yield f"first_{i}_{j}: value_{i}_{j} rest_{i}_{j + 1}" + ("" if needed else f" | first_{i}_{j + 1}")
        yield f'rest_{i}_{j}: ", " value_{i}_{j} rest_{i}_{j + 1}' + ("" if needed else f" | rest_{i}_{j + 1}")
    if takes_any(tool):
        yield f"any_{i}: {_ANY_PARAMETER}"
        yield f'first_{i}_0: "" | any_{i} (", " any_{i})*'
    else:
        yield from (f'first_{i}_{len(schemas)}: ""', f'rest_{i}_{len(schemas)}: ""')


def _in_python(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{in_json(str(key))}: {_in_python(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_python, value))}]"
    return repr(value) if value is None or isinstance(value, bool) else in_json(value)


class _PythonicReader:
    def __init__(self) -> None:
        self._parts, self._head = list[str](), ""  # of what may be a list
        self._plain, self._within, self._at = False, False, 0  # _at: in the response, behind what was read
        self._blanks: list[str] | None = None  # behind the calls, until text follows
        self._depth, self._quote, self._escaped = 0, "", False

    def push(self, part: Part) -> list[Piece]:
        """Return the pieces that this completes."""
        shown, self._at = part.shown, end_of(part)
        if self._plain:
            return self._said(shown)
        if self._within:
            return self._inside(shown)
        self._head += shown
        opens = _BEGINS.match(self._head)
        if opens is not None and opens.end() <= _MOST_HEAD_CHARS:
            self._within, head, self._head = True, self._head, ""
            return self._inside(head)
        begun = _MAY_BEGIN.match(self._head)
        if begun is not None and begun.end() == len(self._head) and len(self._head) < _MOST_HEAD_CHARS:
            return []
        return self._no_calls()

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        return self._no_calls()

    def _no_calls(self, behind: str = "") -> list[Piece]:
        text, self._plain = "".join([*self._parts, self._head, behind]), True
        self._parts, self._head = [], ""
        return [self._ending(text)] if text else []

    def _ending(self, text: str) -> Said:
        """Text up to the end of what was read."""
        return Said(text, at=self._at - len(text))

    def _said(self, text: str) -> list[Piece]:
        """Text behind the calls, or where there are none; blanks behind the calls are told only before text."""
        if self._blanks is not None:
            self._blanks.append(text)
            if not text.strip():
                return []
            text, self._blanks = "".join(self._blanks), None
        return [self._ending(text)] if text else []

    def _inside(self, text: str) -> list[Piece]:
        end = self._end(text)
        self._parts.append(text if end is None else text[:end])
        if end is None:
            return []
        whole, behind = "".join(self._parts), text[end:]
        try:
            calls = _Parser(whole).calls()
        except ValueError:
            return self._no_calls(behind)
        self._parts, self._plain, self._blanks = [], True, []
        pieces = [piece for name, values in calls for piece in (CallBegun(name), CallArguments(values))]
        return pieces + self._said(behind)

    def _end(self, text: str) -> int | None:
        """Where the list ends, or None."""
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = _MARK.search(text, at)
            if found is None:
                return None
            at, mark = found.end(), found[0]
            if mark == "\\":
                self._escaped = bool(self._quote)
            elif self._quote:
                self._quote = "" if mark == self._quote else self._quote
            elif mark in "\"'":
                self._quote = mark
            else:
                self._depth += 1 if mark in "([{" else -1
                if self._depth <= 0:
                    return at
        return None


class _Parser:
    """Parser of a list of calls, without Python's own: that warns, and has limits of its own."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def calls(self) -> list[tuple[str, str]]:
        """Names and arguments in JSON.

        Raises:
            ValueError: it is no list of calls with named arguments.
        """
        self._take("[")
        calls = list[tuple[str, str]]()
        while not self._next("]"):
            name, values = self._name(), dict[str, Any]()
            self._take("(")
            while not self._next(")"):
                key = self._name()
                self._take("=")
                values[key] = self._value(0)
                self._comma(")")
            calls.append((name, in_json(values)))
            self._comma("]")
        self._blank()
        if not calls or self._at < len(self._text):
            raise ValueError("no list of calls")
        in_json(calls).encode()
        return calls

    def _blank(self) -> None:
        found = _BLANK.match(self._text, self._at)
        self._at = self._at if found is None else found.end()

    def _next(self, mark: str) -> bool:
        """Take a mark if it comes next."""
        self._blank()
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) if found else 0
        return found

    def _take(self, mark: str) -> None:
        if not self._next(mark):
            raise ValueError(f"needs {mark}")

    def _comma(self, closes: str) -> bool:
        """Take a comma, unless what closes comes next; return whether there was one."""
        self._blank()
        if self._text.startswith(closes, self._at):
            return False
        self._take(",")
        return True

    def _name(self) -> str:
        self._blank()
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise ValueError("needs a name")
        self._at = found.end()
        return found[0]

    def _value(self, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ValueError("nested too deeply")
        self._blank()
        mark = self._text[self._at : self._at + 1]
        if mark in ('"', "'"):
            return self._string(mark)
        if mark in ("[", "("):
            return self._items("]" if mark == "[" else ")", depth)
        if mark == "{":
            return self._object(depth)
        if (found := _NUMBER.match(self._text, self._at)) is not None:
            self._at = found.end()
            return json.loads(found[0], parse_float=_finite)
        name = self._name()
        if name not in _WORDS:
            raise ValueError(f"{name} is no value")
        return _WORDS[name]

    def _items(self, closes: str, depth: int) -> Any:
        """A list, a tuple as a list, or the one value in parentheses without a comma."""
        self._at += 1
        items, comma = list[Any](), False
        while not self._next(closes):
            items.append(self._value(depth + 1))
            comma = self._comma(closes)
        return items[0] if closes == ")" and len(items) == 1 and not comma else items

    def _object(self, depth: int) -> dict[str, Any]:
        self._at += 1
        found = dict[str, Any]()
        while not self._next("}"):
            key = self._value(depth + 1)
            if not isinstance(key, str):
                raise ValueError("needs a text as key")  # noqa: TRY004 (of the text that is parsed)
            self._take(":")
            found[key] = self._value(depth + 1)
            self._comma("}")
        return found

    def _string(self, quote: str) -> str:
        parts, at = list[str](), self._at + 1
        ends = re.compile(rf"[{quote}\\]")
        while (found := ends.search(self._text, at)) is not None:
            parts.append(self._text[at : found.start()])
            at = found.end()
            if found[0] == quote:
                self._at = at
                text = "".join(parts)
                return text.encode("utf-16", "surrogatepass").decode("utf-16")  # joins pairs; half of one is an error
            char, at = self._escape(at)
            parts.append(char)
        raise ValueError("a text without end")

    def _escape(self, at: int) -> tuple[str, int]:
        char = self._text[at : at + 1]
        digits = {"x": 2, "u": 4, "U": 8}.get(char)
        if digits is None:
            return _ESCAPES.get(char, "\\" + char), at + 1
        written = self._text[at + 1 : at + 1 + digits]
        if len(written) < digits or any(each not in "0123456789abcdefABCDEF" for each in written):
            raise ValueError("no character")
        if (code := int(written, 16)) > sys.maxunicode:
            raise ValueError("no character")
        return chr(code), at + 1 + digits


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large")
    return value
