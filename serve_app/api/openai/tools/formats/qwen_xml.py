"""Qwen 3 Coder's calls: ``<tool_call>``, ``<function=NAME>``, ``<parameter=NAME>`` with each value as text.

A parameter ends where its closing tag is followed by the next one or by the function's. A call is read once it is
whole: what is none stays text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.contracts.errors import ParameterError
from outrider.grammar.texts import literal
from serve_app.api.openai.reasoning.marks import FoundMark, Part, end_of
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said
from serve_app.api.openai.tools.formats.base import CallReader, Marks, NoHead, Tool, in_json, sequence, spelled
from serve_app.api.openai.tools.formats.parameters import (
    as_json,
    as_text,
    bounded,
    check_object,
    properties_of,
    required_of,
    takes_any,
    text_symbols,
    types_of,
)
from serve_app.api.openai.tools.formats.scanning import begun

_OPENS, _FUNCTION, _ENDS, _CLOSES = "<tool_call>", "<function=", "</function>", "</tool_call>"
_HEAD = re.compile(r"\s*<function=([^<>\s]{1,256})>\s*")
_PARAMETER = re.compile(
    r"<parameter=([^<>\n]{1,256})>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>\s*\Z)", re.DOTALL
)
_NAME = re.compile(r"[^<>\s]{0,256}")
_MOST_HEAD_CHARS = 512  # of a call's beginning, up to the function's name and its bracket
_MOST_BLANK_CHARS = 256  # of a function's closing tag and the blanks between it and the call's
_MOST_TAIL_CHARS = _MOST_BLANK_CHARS + len(_CLOSES)
_PARAMETER_ENDS = "\n</parameter>\n"


class QwenXml(NoHead):
    marks = (_OPENS, _CLOSES)
    between = "\n"
    trigger = _OPENS
    example = f"{_OPENS}\n{_FUNCTION}NAME>\n<parameter=NAME>\nVALUE\n</parameter>\n{_ENDS}\n{_CLOSES}"

    def is_in(self, template: str) -> bool:
        """Whether a chat template uses it."""
        return _FUNCTION in template and "<parameter=" in template

    def written(self, name: str, arguments: Any) -> str:
        """A call as the model writes it."""
        given = arguments if isinstance(arguments, dict) else {}
        values = "".join(f"<parameter={key}>\n{as_text(value)}\n</parameter>\n" for key, value in given.items())
        return f"{_OPENS}\n{_FUNCTION}{name}>\n{values}{_ENDS}\n{_CLOSES}"

    def rules(self, tools: Sequence[Tool], marks: Marks, *, several: bool) -> list[str]:
        """Rules of one call, or of several."""
        rules = sequence(tools, spelled(f"\n{_OPENS}", marks), several=several)
        rules[0] = rules[0].replace("calls: call", f"calls: {spelled(_OPENS, marks)} call", 1)
        return rules + bounded(rule for i, tool in enumerate(tools) for rule in self._rules(i, tool, marks))

    def _rules(self, i: int, tool: Tool, marks: Marks) -> Iterator[str]:
        check_object(tool)
        parts, required = [literal(f"\n{_FUNCTION}{tool.name}>\n")], required_of(tool)
        for j, (name, schema) in enumerate(properties_of(tool).items()):
            symbols, terminal = text_symbols(tool, schema, _PARAMETER_ENDS)
            if terminal:
                symbols = f"VALUE_{i}_{j}"
                yield f"{symbols}: {terminal}"
            yield f"parameter_{i}_{j}: {literal(f'<parameter={name}>' + chr(10))} {symbols}"
            parts.append(f"parameter_{i}_{j}" + ("" if name in required else "?"))
        if takes_any(tool):
            yield f"VALUE_{i}: {text_symbols(tool, {}, _PARAMETER_ENDS)[1]}"
            yield f'parameter_{i}: "<parameter=" /[^<>\\n]{{1,256}}>\\n/ VALUE_{i}'
            parts.append(f"parameter_{i}*")
        yield f"call_{i}: {' '.join(parts)} {spelled(f'{_ENDS}{chr(10)}{_CLOSES}', marks)}"

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:  # noqa: ARG002 (interface)
        """A reader of one choice."""
        return _XmlReader({tool.name: tool for tool in tools})


class _XmlReader:
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools, self._types = tools, dict[tuple[str, str], frozenset[str]]()  # types: of parameters read so far
        self._held, self._at = "", 0  # _at: in the response, behind what is held
        self._call, self._head = list[FoundMark | str](), ""  # of the call that has begun, if any
        self._tail = ""  # the call's last characters
        self._within = self._known = self._after_call = False  # known: the call's head was read
        self._blanks = list[str]()  # behind a call, until text follows

    def push(self, part: Part) -> list[Piece]:
        """Return the pieces that this completes."""
        self._at = end_of(part)
        if isinstance(part, FoundMark) and part.mark.text in QwenXml.marks:
            return self._mark(part)
        self._held += part.shown
        pieces = list[Piece]()
        while (more := self._inside() if self._within else self._outside()) is not None:
            pieces += more
        return pieces

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        if self._within:
            return self._no_call()
        return self._said(self._held)

    def _mark(self, found: FoundMark) -> list[Piece]:
        """A tag that is a special token: it is read as its text, and told as what it shows."""
        if not self._within:
            text, self._held = self._held, ""
            if found.mark.text == _OPENS:
                return self._begin(found, text, found.shown)
            return self._said(text + found.shown)
        if not self._known:
            return self._no_call(found.shown) + self._mark(found)
        self._call.append(found)
        if found.mark.text == _CLOSES and _is_closed(self._tail):
            return self._whole()
        self._tail = (self._tail + found.mark.text)[-_MOST_TAIL_CHARS:]
        return []

    def _begin(self, opens: FoundMark | str, before: str, behind: str) -> list[Piece]:
        """Begin what may be a call behind text, which it tells; blanks between two calls are left out."""
        said = self._said(before, behind)
        self._within, self._known, self._head, self._tail, self._call = True, False, "", "", [opens]
        return said

    def _outside(self) -> list[Piece] | None:
        before, tag, behind = self._held.partition(_OPENS)
        kept = 0 if tag else begun(_OPENS, self._held)
        text = before[: len(before) - kept]
        if tag:
            self._held = behind
            return self._begin(tag, text, tag + behind)
        self._held = before[len(text) :]
        return self._said(text, self._held) if text else None

    def _inside(self) -> list[Piece] | None:
        text, self._held = self._held, ""
        if not text:
            return None
        if not self._known:
            return self._read_head(text)
        at, seen = 0, self._tail + text
        while (at := seen.find(_CLOSES, at)) >= 0:
            at += len(_CLOSES)
            if _is_closed(seen[max(0, at - _MOST_TAIL_CHARS) : at - len(_CLOSES)]):
                self._call.append(seen[len(self._tail) : at])
                self._held = seen[at:]
                return self._whole()
        self._call.append(text)
        self._tail = seen[-_MOST_TAIL_CHARS:]
        return []

    def _read_head(self, text: str) -> list[Piece]:
        self._head += text
        found, bare = _HEAD.match(self._head), self._head.lstrip()
        self._known = found is not None and self._head.index(">") < _MOST_HEAD_CHARS
        may_follow = _FUNCTION.startswith(bare[: len(_FUNCTION)]) and _NAME.fullmatch(bare[len(_FUNCTION) :])
        if found is None and may_follow and len(self._head) < _MOST_HEAD_CHARS:
            return []
        self._held, self._head = self._head, ""
        return [] if self._known else self._no_call(self._held)

    def _no_call(self, behind: str = "") -> list[Piece]:
        """Leave text as it is."""
        text = "".join([*(part if isinstance(part, str) else part.shown for part in self._call), self._head])
        self._within, self._after_call, self._head = False, False, ""
        return self._said(text, behind)

    def _whole(self) -> list[Piece]:
        text = "".join(part.mark.text if isinstance(part, FoundMark) else part for part in self._call)
        found = _HEAD.match(text, len(_OPENS))
        arguments = None if found is None else self._arguments(found[1], text, found.end())
        if found is None or arguments is None:
            return self._no_call(self._held)
        self._within, self._after_call = False, True
        self._blanks.clear()
        return [CallBegun(found[1]), CallArguments(arguments)]

    def _arguments(self, name: str, text: str, at: int) -> str | None:
        """JSON of a call's parameters; None: it is no call."""
        end, values = text.rindex(_ENDS) + len(_ENDS), dict[str, str]()
        while (found := _PARAMETER.match(text, at, end)) is not None:
            values[found[1]] = as_json(found[2], self._types_of(name, found[1]))
            at = found.end()
        if text[at:end].strip() != _ENDS:
            return None
        return "{" + ", ".join(f"{in_json(key)}: {value}" for key, value in values.items()) + "}"

    def _types_of(self, name: str, parameter: str) -> frozenset[str]:
        """Types of a parameter; any where they cannot be told, as no request is refused while it is answered."""
        tool = self._tools.get(name)
        if tool is None or parameter not in properties_of(tool):
            return frozenset()
        if (name, parameter) not in self._types:
            try:
                types = types_of(tool, properties_of(tool)[parameter])
            except ParameterError:
                types = frozenset()
            self._types[name, parameter] = types
        return self._types[name, parameter]

    def _said(self, text: str, behind: str = "") -> list[Piece]:
        """Text that ends before ``behind``, the end of what was read."""
        if self._after_call and not text.strip():
            self._blanks.append(text)
            return []
        text = "".join([*self._blanks, text])
        self._blanks.clear()
        self._after_call = False
        return [Said(text, at=self._at - len(behind) - len(text))] if text else []


def _is_closed(text: str) -> bool:
    """Whether a function's closing tag is the last thing but for blanks."""
    return text[-_MOST_BLANK_CHARS:].rstrip().endswith(_ENDS)
