"""Calls that are one JSON object each: Hermes' (Qwen 2.5 and 3, many others) in tags, Llama 3's without."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.grammar.texts import literal
from serve_app.api.openai.tools.formats.base import CallReader, Marks, NoHead, Tool, sequence, spelled
from serve_app.api.openai.tools.reader import ToolReader


@dataclass(frozen=True, slots=True)
class JsonCalls(NoHead):
    arguments: str  # key of a call's arguments
    tags: tuple[str, str]  # text before and behind a call; calls are read with any white space inside and between them
    between: str
    found_by: tuple[str, ...]  # a chat template that contains one of these uses this form

    @property
    def example(self) -> str:
        """How a call looks."""
        call = f'{{"name": <function-name>, "{self.arguments}": <args-json-object>}}'
        return f"{self.tags[0]}{call}{self.tags[1]}"

    def is_in(self, template: str) -> bool:
        """Whether a chat template uses it."""
        return any(text in template for text in self.found_by)

    def written(self, name: str, arguments: Any) -> str:
        """A call as the model writes it."""
        return self.tags[0] + json.dumps({"name": name, self.arguments: arguments}) + self.tags[1]

    @property
    def trigger(self) -> str | None:
        """What begins a call anywhere in a text: its tag."""
        return self.tags[0].strip() or None

    @property
    def marks(self) -> tuple[str, ...]:
        """Tags, which may be tokens."""
        return tuple(tag.strip() for tag in self.tags if tag.strip())

    def rules(self, tools: Sequence[Tool], marks: Marks, *, several: bool) -> list[str]:
        """Rules of one call, or of several."""
        tag = self.tags[0].strip()
        rules = sequence(tools, spelled(self.between + tag, marks), several=several)
        if tag:
            rules[0] = rules[0].replace("calls: call", f"calls: {spelled(tag, marks)} call", 1)
        for i, tool in enumerate(tools):
            parts = ["{", '"name"', ": ", json.dumps(tool.name), ", ", f'"{self.arguments}"', ": "]
            head = [self.tags[0].removeprefix(tag) + "".join(parts)] if tag else parts
            # Without a tag, an answer in JSON may begin alike: the grammar library wants the same lexemes of both.
            rules.append(f"call_{i}: {' '.join(map(literal, head))} arguments_{i} {spelled('}' + self.tags[1], marks)}")
            rules.append(f"arguments_{i}: %json {json.dumps(tool.parameters)}")
        return rules

    def reader(self, tools: Sequence[Tool], marks: Marks) -> CallReader:  # noqa: ARG002 (interface)
        """A reader of one choice."""
        opens, closes = (tag.strip() for tag in self.tags)
        return ToolReader(opens, closes, {tool.name for tool in tools})


HERMES = JsonCalls("arguments", ("<tool_call>\n", "\n</tool_call>"), "\n", ("<tool_call>",))
LLAMA3 = JsonCalls("parameters", ("", ""), "; ", ("<|python_tag|>", '"parameters": dictionary'))
