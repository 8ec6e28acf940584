"""Input items as messages of a chat. Reasoning, text and calls that follow each other are one assistant's message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.contracts.errors import ParameterError
from serve_app.api.http_errors import MissingFieldError, UnsupportedFieldError
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.unsupported import TEXT_ONLY
from serve_app.api.responses.bodies import InputItem, InputPart

_ROLES = ("user", "system", "developer", "assistant")
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_KINDS = ("message", "function_call", "function_call_output", "reasoning")


def check_kinds(given: object) -> None:
    """Check the types of items before their fields, of which other types have others.

    Raises:
        UnsupportedFieldError: one is none of these.
    """
    for i, item in enumerate(given if isinstance(given, list) else ()):
        kind, path = item.get("type") if isinstance(item, dict) else None, f"input[{i}].type"
        match kind:
            case "item_reference":
                needed = "item_reference is not supported: nothing is stored; send the item itself"
            case "custom_tool_call" | "custom_tool_call_output":
                needed = (
                    f"{kind} is not supported: send it as {kind.replace('custom_tool', 'function')}, its text as JSON"
                )
            case str() if kind not in _KINDS:
                needed = f"{kind[:64]!r} is not supported yet; items are {', '.join(_KINDS[:-1])} and {_KINDS[-1]}"
            case _:
                continue
        raise UnsupportedFieldError(path, f"{path} {needed}")


@dataclass(slots=True)
class Messages:
    """Messages of a chat, as fields.

    Attributes:
        origins: of each message, the path of the field or item that it begins with.
    """

    fields: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    _open: bool = False  # whether the last one is an assistant's, of which more may follow

    def add(self, item: InputItem, path: str, ignored: IgnoredFields) -> None:
        """Append what an item of a known type says.

        Raises:
            UnsupportedFieldError: the type of a part is none of these.
            MissingFieldError: it lacks what its type needs.
            ParameterError: it has another role than there are.
        """
        match item.type:
            case "message":
                self._said(item, path)
            case "function_call":
                call = {
                    "name": _needed(item.name, path, "name"),
                    "arguments": _needed(item.arguments, path, "arguments"),
                }
                called = {"id": _needed(item.call_id, path, "call_id"), "type": "function", "function": call}
                self._assistants(path).setdefault("tool_calls", []).append(called)
            case "function_call_output":
                said = _content(_needed(item.output, path, "output"), f"{path}.output")
                answered = {"tool_call_id": _needed(item.call_id, path, "call_id"), "content": said}
                self.begin({"role": "tool", **answered}, path)
            case "reasoning":
                if item.encrypted_content is not None:
                    ignored.tell("input.encrypted_content")
                self._thought(item, path)

    def ended(self) -> Sequence[Mapping[str, Any]]:
        """All messages; one of reasoning only has an empty content."""
        for message in self.fields:
            if "tool_calls" not in message:
                message.setdefault("content", "")
            if "reasoning_content" in message:
                message["reasoning_content"] = "\n".join(message["reasoning_content"])
        return self.fields

    def begin(self, message: dict[str, Any], path: str) -> dict[str, Any]:
        self.fields.append(message)
        self.origins.append(path)
        self._open = message["role"] == "assistant"
        return message

    def _assistants(self, path: str, *, without: Sequence[str] = ()) -> dict[str, Any]:
        """The assistant's message that goes on, unless it has one of these fields; or a new one."""
        if self._open and not any(name in self.fields[-1] for name in without):
            return self.fields[-1]
        return self.begin({"role": "assistant"}, path)

    def _said(self, item: InputItem, path: str) -> None:
        if item.role not in _ROLES:
            raise ParameterError(f"{path}.role", f"one of {', '.join(_ROLES)}", item.role)
        content = _content(_needed(item.content, path, "content"), f"{path}.content")
        if item.role == "assistant":
            calls = self._open and "tool_calls" in self.fields[-1]  # their results have to stand right behind them
            message = self._assistants(path, without=() if calls else ("content",))
            said = message.get("content")
            message["content"] = content if said is None else [*_parts(said), *_parts(content)]
        else:
            self.begin({"role": item.role, "content": content}, path)

    def _thought(self, item: InputItem, path: str) -> None:
        parts = item.content or item.summary or ()
        said = (
            parts
            if isinstance(parts, str)
            else "\n".join(_text(part, f"{path}.content[{i}]") for i, part in enumerate(parts))
        )
        if said:
            message = self._assistants(path, without=("content", "tool_calls"))
            message.setdefault("reasoning_content", []).append(said)


def _content(given: str | list[InputPart], path: str) -> str | list[dict[str, str]]:
    if isinstance(given, str):
        return given
    return [{"type": "text", "text": _text(part, f"{path}[{i}]")} for i, part in enumerate(given)]


def _parts(content: str | list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(part: InputPart, path: str) -> str:
    if part.type == "refusal":
        return part.refusal
    if part.type not in _TEXTS:
        shown = f"{path}.type {part.type[:64]!r}"
        raise UnsupportedFieldError(f"{path}.type", f"{shown} is not supported yet; {TEXT_ONLY}")
    return part.text


def _needed(value: Any, path: str, name: str) -> Any:
    if value is None:
        raise MissingFieldError(f"{path}.{name}", f"{path}.{name} is missing; it needs a value")
    return value
