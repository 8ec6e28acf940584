"""A form of tool calls: how it is recognised, asked for, enforced, read and written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from outrider.grammar.texts import literal
from serve_app.api.openai.reasoning.marks import Mark, Part
from serve_app.api.openai.reasoning.pieces import Piece

Marks = Mapping[str, Mark]  # a form's marks by their text
_MARKS_OF_REGEX = "/.()[]{}|*+?^$&~\\"
NO_MARKS: Marks = {}  # where none is a token


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, object]  # JSON schema of its arguments
    given: Mapping[str, object]  # the tool as the request described it
    strict: bool = False  # whether its arguments follow the schema wherever the model calls it


class CallReader(Protocol):
    """Incremental parser of one choice's calls. What is no call stays text; joined pieces do not depend on splits."""

    def push(self, part: Part) -> list[Piece]:
        """Return the pieces that this completes."""
        ...

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        ...


class ToolFormat(Protocol):
    """How a family of models writes calls.

    Attributes:
        marks: texts of special tokens that it is written with, if the tokenizer has them.
        between: text between two calls, as written.
        example: how a call looks, for templates that do not tell.
        trigger: what begins a call anywhere in a text; None: calls stand alone, or in one list.
    """

    @property
    def marks(self) -> tuple[str, ...]: ...

    @property
    def between(self) -> str: ...

    @property
    def example(self) -> str: ...

    def is_in(self, template: str) -> bool:
        """Whether a chat template uses it."""
        ...

    def written(self, name: str, arguments: Any) -> str:
        """A call with its arguments, an object, as the model writes it."""
        ...

    def rules(self, tools: Sequence[Tool], marks: Marks, *, several: bool) -> list[str]:
        """Lark rules of one call, or of several; the first is ``calls``, and ``call`` is what follows a trigger.

        Raises:
            ParameterError: a tool's parameters cannot be enforced in this form.
        """
        ...

    @property
    def trigger(self) -> str | None: ...

    def answer_head(self, marks: Marks) -> str:
        """Lark symbols of what the model writes before an answer that is no call; "": nothing."""
        ...

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:
        """A reader of one choice."""
        ...


class NoHead:
    """Of forms whose answers begin at once."""

    __slots__ = ()

    def answer_head(self, marks: Marks) -> str:  # noqa: ARG002 (interface)
        return ""


def spelled(text: str, marks: Marks) -> str:
    """Lark symbols of a text; marks in it that are tokens are those tokens."""
    symbols = list[str]()
    while text:
        at, mark = min(
            ((at, mark) for mark in marks.values() if mark.token_id is not None and (at := text.find(mark.text)) >= 0),
            default=(len(text), None),
            key=lambda found: found[0],
        )
        symbols += [literal(text[:at])] if at else []
        symbols += [] if mark is None else [f"<[{mark.token_id}]>"]
        text = text[at:].removeprefix("" if mark is None else mark.text)
    return " ".join(symbols)


def sequence(tools: Sequence[Tool], between: str, *, several: bool) -> list[str]:
    """The rules ``calls`` and ``call``, over ``call_0``, ``call_1``, ..."""
    more = f" ({between} call)*" if several else ""
    return [f"calls: call{more}", f"call: {' | '.join(f'call_{i}' for i in range(len(tools)))}"]


def regex_of(text: str) -> str:
    """A regular expression of Lark's that matches a text."""
    return "".join("\\n" if char == "\n" else f"\\{char}" if char in _MARKS_OF_REGEX else char for char in text)


def in_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
