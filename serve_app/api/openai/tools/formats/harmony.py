"""gpt-oss's calls: messages to ``functions.NAME`` in a channel. ``reasoning.channels`` reads them."""

import json
from collections.abc import Sequence
from typing import Any

from serve_app.api.openai.reasoning.marks import Part
from serve_app.api.openai.reasoning.pieces import Piece, Said
from serve_app.api.openai.tools.formats.base import CallReader, Marks, Tool, in_json, sequence, spelled

_THOUGHT = "<|channel|>analysis<|message|>"
_FINAL = "<|channel|>final<|message|>"
_NEXT = "<|end|><|start|>assistant"


class Harmony:
    marks = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>")
    between = ""
    trigger = None
    example = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>"

    def is_in(self, template: str) -> bool:
        """Whether a chat template uses it."""
        return "<|channel|>" in template and "to=functions." in template

    def written(self, name: str, arguments: Any) -> str:
        """A call as the model writes it."""
        return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{in_json(arguments)}<|call|>"

    def rules(self, tools: Sequence[Tool], marks: Marks, *, several: bool) -> list[str]:  # noqa: ARG002 (a call ends it)
        """Rules of one call, behind reasoning or at once; the token that ends the response ends it."""
        rules = sequence(tools, "", several=False)
        rules[0] = f"calls: {self._thought(marks)} call"
        for i, tool in enumerate(tools):
            head = f"<|channel|>commentary to=functions.{tool.name} <|constrain|>json<|message|>"
            rules.append(f"call_{i}: {spelled(head, marks)} %json {json.dumps(tool.parameters)}")
        return [*rules, "THOUGHT: /(.|\\n)*/"]

    def answer_head(self, marks: Marks) -> str:
        """Reasoning, and the answer's header."""
        return f"{self._thought(marks)} {spelled(_FINAL, marks)}"

    def _thought(self, marks: Marks) -> str:
        return f"({spelled(_THOUGHT, marks)} THOUGHT {spelled(_NEXT, marks)})?"

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:  # noqa: ARG002 (interface)
        """Channels are read with their reasoning: what is left is text."""
        return _NoCalls()


class _NoCalls:
    def push(self, part: Part) -> list[Piece]:
        return [Said(part.shown, at=part.begin)] if part.shown else []

    def finish(self) -> list[Piece]:
        return []
