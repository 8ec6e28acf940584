"""Qwen 3 Coder's calls: ``<tool_call>``, ``<function=NAME>``, ``<parameter=NAME>`` with each value as text.

A parameter ends where its closing tag is followed by the next one or by the function's. A call is read once it is
whole: what is none stays text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.grammar.texts import literal
from serve_app.api.openai.reasoning.marks import Part, text_of_part
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said
from serve_app.api.openai.tools.formats.base import CallReader, Marks, Tool, in_json, sequence, spelled
from serve_app.api.openai.tools.formats.parameters import (
    as_json,
    as_text,
    check_object,
    properties_of,
    required_of,
    text_symbols,
    types_of,
)
from serve_app.api.openai.tools.formats.scanning import begun

_OPENS, _FUNCTION, _ENDS, _CLOSES = "<tool_call>", "<function=", "</function>", "</tool_call>"
_HEAD = re.compile(r"\s*<function=([^<>\s]{1,256})>\s*")
_PARAMETER = re.compile(
    r"<parameter=([^<>\n]{1,256})>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>\s*\Z)", re.DOTALL
)
_MOST_HEAD_CHARS = 512


class QwenXml:
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
        closes = f"{_ENDS}\n{_CLOSES}"
        for i, tool in enumerate(tools):
            check_object(tool)
            parts = [literal(f"\n{_FUNCTION}{tool.name}>\n")]
            for j, (name, schema) in enumerate(properties_of(tool).items()):
                symbols, terminal = text_symbols(tool, schema, "\n</parameter>\n")
                if terminal:
                    symbols = f"VALUE_{i}_{j}"
                    rules.append(f"{symbols}: {terminal}")
                rules.append(f"parameter_{i}_{j}: {literal(f'<parameter={name}>' + chr(10))} {symbols}")
                parts.append(f"parameter_{i}_{j}" + ("" if name in required_of(tool) else "?"))
            rules.append(f"call_{i}: {' '.join(parts)} {spelled(closes, marks)}")
        return rules

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:  # noqa: ARG002 (interface)
        """A reader of one choice."""
        return _XmlReader({tool.name: tool for tool in tools})


class _XmlReader:
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._held, self._call, self._head = "", list[str](), ""  # of the call that has begun, if any
        self._tail = ""  # the call's last characters
        self._within = self._known = self._after_call = False  # known: the call's head was read

    def push(self, text: Part) -> list[Piece]:
        """Return the pieces that this completes."""
        self._held += text_of_part(text)
        pieces = list[Piece]()
        while (more := self._inside() if self._within else self._outside()) is not None:
            pieces += more
        return pieces

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        if self._within:
            return self._no_call()
        return self._said(self._held)

    def _outside(self) -> list[Piece] | None:
        before, tag, behind = self._held.partition(_OPENS)
        kept = 0 if tag else begun(_OPENS, self._held)
        text = before[: len(before) - kept]
        if tag:
            self._within, self._known, self._head, self._tail, self._held = True, False, "", "", behind
            self._call = [_OPENS]
            return self._said(text)
        if not text or (self._after_call and not text.strip()):
            return None
        self._held = before[len(text) :]
        return self._said(text)

    def _inside(self) -> list[Piece] | None:
        text, self._held = self._held, ""
        if not text:
            return None
        if not self._known:
            return self._read_head(text)
        at, seen = 0, self._tail + text
        while (at := seen.find(_CLOSES, at)) >= 0:
            at += len(_CLOSES)
            if seen[max(0, at - len(_CLOSES) - 256) : at - len(_CLOSES)].rstrip().endswith(_ENDS):
                self._call.append(seen[len(self._tail) : at])
                self._held = seen[at:]
                return self._whole()
        self._call.append(text)
        self._tail = seen[-(len(_CLOSES) + 256) :]
        return []

    def _read_head(self, text: str) -> list[Piece]:
        self._head += text
        self._known = _HEAD.match(self._head) is not None
        bare = self._head.lstrip()
        if self._known or not (_FUNCTION.startswith(bare[: len(_FUNCTION)]) and len(self._head) < _MOST_HEAD_CHARS):
            self._held, self._head, self._within = self._head, "", self._known
            return [] if self._known else self._no_call()
        return []

    def _no_call(self) -> list[Piece]:
        """Leave text as it is."""
        text, self._within, self._after_call = "".join(self._call) + self._head, False, False
        return [Said(text)]

    def _whole(self) -> list[Piece]:
        text = "".join(self._call)
        found = _HEAD.match(text, len(_OPENS))
        arguments = None if found is None else self._arguments(found[1], text, found.end())
        if found is None or arguments is None:
            return self._no_call()
        self._within, self._after_call = False, True
        return [CallBegun(found[1]), CallArguments(arguments)]

    def _arguments(self, name: str, text: str, at: int) -> str | None:
        """JSON of a call's parameters; None: it is no call."""
        end, tool, values = text.rindex(_ENDS) + len(_ENDS), self._tools.get(name), dict[str, str]()
        while (found := _PARAMETER.match(text, at, end)) is not None:
            schema = {} if tool is None else properties_of(tool).get(found[1])
            types = frozenset[str]() if tool is None else types_of(tool, schema)
            values[found[1]] = as_json(found[2], types)
            at = found.end()
        if text[at:end].strip() != _ENDS:
            return None
        return "{" + ", ".join(f"{in_json(key)}: {value}" for key, value in values.items()) + "}"

    def _said(self, text: str) -> list[Piece]:
        if self._after_call and not text.strip():
            return []
        self._after_call = self._after_call and not text
        return [Said(text)] if text else []
