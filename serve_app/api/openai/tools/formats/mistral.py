"""Mistral's calls: ``[TOOL_CALLS]NAME[ARGS]{...}``, one mark for each, or ``[TOOL_CALLS][{...}, ...]``, one for all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.grammar.texts import literal
from serve_app.api.openai.reasoning.marks import FoundMark, Mark, MarkedText, Part, Text, end_of
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said
from serve_app.api.openai.tools.formats.base import CallReader, Marks, NoHead, Tool, in_json, sequence, spelled
from serve_app.api.openai.tools.formats.scanning import JsonEnd, elements
from serve_app.api.openai.tools.reader import call_of

_CALLS, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_MOST_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class Mistral(NoHead):
    listed: bool  # whether all calls are in one list
    marks: tuple[str, ...] = (_CALLS, _ARGS, _ID)

    @property
    def between(self) -> str:
        """Text between two calls."""
        return ", " if self.listed else ""

    @property
    def example(self) -> str:
        """How a call looks."""
        return self.written("<function-name>", {}).replace("{}", "<args-json-object>")

    def is_in(self, template: str) -> bool:
        """Whether a chat template uses it."""
        return _CALLS in template and (_ARGS not in template) == self.listed

    def written(self, name: str, arguments: Any) -> str:
        """A call as the model writes it; for a list, a list of one."""
        if self.listed:
            return f"{_CALLS}[{in_json({'name': name, 'arguments': arguments})}]"
        return f"{_CALLS}{name}{_ARGS}{in_json(arguments)}"

    @property
    def trigger(self) -> str | None:
        """What begins a call anywhere in a text."""
        return None if self.listed else _CALLS

    def rules(self, tools: Sequence[Tool], marks: Marks, *, several: bool) -> list[str]:
        """Rules of one call, or of several."""
        opens = spelled(_CALLS, marks)
        rules = sequence(tools, '", "' if self.listed else opens, several=several)
        inner = rules[0].removeprefix("calls: ")
        rules[0] = f'calls: {opens} "[" {inner} "]"' if self.listed else f"calls: {opens} {inner}"
        for i, tool in enumerate(tools):
            schema = f"%json {json.dumps(tool.parameters)}"
            if self.listed:
                head = f'{{"name": {json.dumps(tool.name)}, "arguments": '
                rules.append(f'call_{i}: {literal(head)} {schema} "}}"')
            else:
                rules.append(f"call_{i}: {spelled(tool.name + _ARGS, marks)} {schema}")
        return rules

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:  # noqa: ARG002 (interface)
        """A reader of one choice."""
        return _MistralReader(marks)


class _MistralReader:
    """Parser of one choice; marks that are no tokens are looked for in the text."""

    def __init__(self, marks: Marks) -> None:
        known = [marks.get(text, Mark(text)) for text in (_CALLS, _ARGS, _ID)]
        self._spelled = MarkedText([mark for mark in known if not mark.special])
        self._name: list[str] | None = None  # of the call that has begun, up to its arguments; None: text
        self._length, self._shown = 0, list[str]()  # shown: all of the call's text, until it is certainly one
        self._begun, self._at = 0, 0  # in the response: where the call begins; behind what was read
        self._end: JsonEnd | None = None  # of the JSON that is being read
        self._streams, self._list_at = False, 0  # list_at: where in what is shown the list begins
        self._after_call, self._blanks = False, list[str]()  # whether only these blanks came since a call

    def push(self, part: Part) -> list[Piece]:
        """Return the pieces that this completes."""
        if isinstance(part, FoundMark):
            return self._parts([*self._spelled.finish(), part])
        return self._parts(self._spelled.push(part.shown, begin=part.begin))

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        return self._parts(self._spelled.finish()) + self._no_call()

    def _parts(self, parts: Sequence[Part]) -> list[Piece]:
        return [piece for part in parts for piece in self._read(part)]

    def _read(self, part: Part) -> list[Piece]:
        self._at = end_of(part)
        if isinstance(part, FoundMark) and part.mark.text == _CALLS and (self._end is None or part.index is not None):
            before = self._no_call()
            self._name, self._length, self._shown, self._begun = [], 0, [part.shown], part.begin
            return before
        if self._end is not None:
            return self._json(part.shown)
        if self._name is None:
            return self._said(part.shown, part.begin)
        self._shown.append(part.shown)
        if isinstance(part, FoundMark):
            self._name.append(part.mark.text)
            return []
        return self._head(part.shown)

    def _head(self, text: str) -> list[Piece]:
        """A call's name, up to where its arguments or the list begin."""
        assert self._name is not None
        begins = min((at for char in "{[" if (at := text.find(char)) >= 0), default=-1)
        self._length += len(text) if begins < 0 else begins
        if self._length > _MOST_NAME_CHARS:
            return self._no_call()
        if begins < 0:
            self._name.append(text)
            return []
        name = "".join([*self._name, text[:begins]]).strip()
        name = name.removesuffix(_ARGS).partition(_ID)[0].strip()
        is_list = not name and text[begins] == "["
        if not is_list and (not name or text[begins] == "[" or any(char in name for char in " \n<>[]{}")):
            return self._no_call()
        self._end, self._streams = JsonEnd(), not is_list
        if is_list:
            self._shown[-1] = self._shown[-1][:begins]
            self._list_at = sum(map(len, self._shown))
            return self._json(text[begins:])
        self._shown.clear()
        return self._called([CallBegun(name)]) + self._json(text[begins:])

    def _json(self, text: str) -> list[Piece]:
        assert self._end is not None
        end = self._end.end(text)
        inside, behind = (text, "") if end is None else (text[:end], text[end:])
        if self._streams:
            pieces: list[Piece] = [CallArguments(inside)] if inside else []
        else:
            self._shown.append(inside)
            pieces = []
        if end is None:
            return pieces
        pieces += [] if self._streams else self._list()
        self._end, self._name = None, None
        return pieces + (self._read(Text(behind, self._at - len(behind))) if behind else [])

    def _list(self) -> list[Piece]:
        """The calls of a complete list, or the text that it is."""
        text = "".join(self._shown)
        self._end, self._name, self._shown = None, None, []
        try:
            calls = [call_of(element) for element in elements(text[self._list_at :])]
        except ValueError:
            calls = [None]
        if any(call is None for call in calls):
            return self._said(text, self._begun)
        return self._called([piece for call in calls for piece in call or ()])

    def _called(self, pieces: list[Piece]) -> list[Piece]:
        """Leave out the blanks before a call and behind it."""
        self._after_call = True
        self._blanks.clear()
        return pieces

    def _no_call(self) -> list[Piece]:
        """Leave what has begun as text; arguments that leave as they come were a call."""
        text, self._shown = "".join(self._shown), []
        self._name, self._end, self._length = None, None, 0
        return self._said(text, self._begun) if text else []

    def _said(self, text: str, at: int) -> list[Piece]:
        if self._after_call and not text.strip():
            self._blanks.append(text)
            return []
        blanks = "".join(self._blanks)
        self._after_call, self._blanks = False, []
        return [Said(blanks + text, at=at - len(blanks))] if blanks or text else []
