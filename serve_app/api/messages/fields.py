"""Validation of the Messages API's bodies, whose lists have objects of several kinds."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from outrider.contracts.errors import ParameterError, shown_value
from serve_app.api.http_errors import MissingFieldError, UnsupportedFieldError
from serve_app.api.messages.bodies import (
    AnsweringTurn,
    AskingTurn,
    CountTokensBody,
    OutputConfig,
    RedactedThinkingInput,
    RequestMetadata,
    TextInput,
    ThinkingInput,
    ThinkingInstruction,
    ToolInput,
    ToolResultInput,
    ToolSelection,
    ToolUseInput,
)
from serve_app.api.openai.bodies import ChatBody, OutriderOptions
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.parsing import NEEDED_BY_FIELD, FieldReader, FieldRules, explained
from serve_app.api.openai.unsupported import NOT_YET, TEXT_ONLY, NotYet

_Body = TypeVar("_Body", bound=CountTokensBody)
_Kind = TypeVar("_Kind", bound=BaseModel)
_Kinds = Mapping[str, type[BaseModel]]  # by ``type``
_TEXTS: _Kinds = {"text": TextInput}
_BY_ROLE: Mapping[str, _Kinds] = {
    "user": {**_TEXTS, "tool_result": ToolResultInput},
    "assistant": {
        **_TEXTS,
        "thinking": ThinkingInput,
        "redacted_thinking": RedactedThinkingInput,
        "tool_use": ToolUseInput,
    },
    "system": _TEXTS,
}
_KNOWN = frozenset(name for kinds in _BY_ROLE.values() for name in kinds)
_OBJECTS: Mapping[str, type[BaseModel]] = {
    "tool_choice": ToolSelection,
    "thinking": ThinkingInstruction,
    "output_config": OutputConfig,
    "metadata": RequestMetadata,
    "outrider": OutriderOptions,
}
_CHATS = {
    "stop": "use stop_sequences",
    "max_completion_tokens": "use max_tokens",
    "user": "use metadata.user_id",
    "safety_identifier": "use metadata.user_id",
    "reasoning_effort": "use output_config.effort",
    "response_format": "use output_config.format",
    "parallel_tool_calls": "use tool_choice.disable_parallel_tool_use",
}


def _of_chats() -> Mapping[str, NotYet]:
    """Chats' fields that this API does not have."""
    neutral = {name: field.default for name, field in ChatBody.model_fields.items()}
    return {
        name: NotYet(
            _CHATS.get(name, "use /v1/chat/completions"),
            (default,) if isinstance(default, bool | int | list) else (),
        )
        for name, default in neutral.items()
    }


_NEEDED = {
    "content": "a text, or a list of blocks such as {'type': 'text', 'text': '...'}",
    "role": "'user', 'assistant' or 'system'",
    "metadata": "an object such as {'user_id': '...'}",
}
_WITHIN = FieldRules({}, NOT_YET, _NEEDED)
MESSAGES_NOT_YET: Mapping[str, NotYet] = {
    **NOT_YET,
    **_of_chats(),
    "mcp_servers": NotYet("call their tools yourself", ([],)),
    "container": NotYet("tools run at the client"),
    "thread": NotYet("nothing is stored; send the whole dialogue"),
}
_ON_TOP = FieldRules({}, MESSAGES_NOT_YET, _NEEDED)


def read_message_fields(data: Mapping[str, object], kind: type[_Body], ignored: IgnoredFields) -> _Body:
    """Validate a body's fields; note in ``ignored`` what is not known.

    Raises:
        OutriderError: as ``parse_body``; or a kind of content or tool that is not supported.
    """
    return _MessageFields(ignored).body(data, kind)


class _MessageFields:
    """Each object is validated by itself, as the model of its kind."""

    def __init__(self, ignored: IgnoredFields) -> None:
        self._ignored = ignored

    def body(self, data: Mapping[str, object], kind: type[_Body]) -> _Body:
        fields = FieldReader(_ON_TOP, self._ignored).read(data, kind)
        for name, value in fields.items():
            if name in _OBJECTS:
                fields[name] = self._object(_OBJECTS[name], value, name)
            elif name == "system" and isinstance(value, list):
                fields[name] = self._blocks(value, name, _TEXTS)
            elif name == "messages" and isinstance(value, list):
                fields[name] = [self._message(each, f"{name}[{i}]") for i, each in enumerate(value)]
            elif name == "tools" and isinstance(value, list):
                fields[name] = [self._tool(each, f"{name}[{i}]") for i, each in enumerate(value)]
        return _validated(kind, fields, "")

    def _message(self, value: object, where: str) -> object:
        role = value.get("role") if isinstance(value, dict) else None
        kind: type[BaseModel] = AnsweringTurn if role == "assistant" else AskingTurn
        fields = self._known(kind, value, where)
        if isinstance(role, str) and role in _BY_ROLE and isinstance(content := fields.get("content"), list):
            fields["content"] = self._blocks(content, f"{where}.content", _BY_ROLE[role])
        return _validated(kind, fields, where)

    def _blocks(self, values: list[Any], where: str, kinds: _Kinds) -> list[object]:
        return [self._block(value, f"{where}[{i}]", kinds) for i, value in enumerate(values)]

    def _block(self, value: object, where: str, kinds: _Kinds) -> object:
        named = value.get("type") if isinstance(value, dict) else None
        if named is None:
            raise MissingFieldError(f"{where}.type", f"{where}.type is missing; it needs one of {', '.join(kinds)}")
        kind = kinds.get(named) if isinstance(named, str) else None
        if kind is None:
            misplaced = isinstance(named, str) and named in _KNOWN
            advice = f"needs one of {', '.join(kinds)} here" if misplaced else TEXT_ONLY
            path, found = f"{where}.type", shown_value(named)[:64]
            raise UnsupportedFieldError(path, f"{path} {found} is not supported yet; {advice}")
        fields = self._known(kind, value, where)
        if kind is ToolResultInput and isinstance(content := fields.get("content"), list):
            fields["content"] = self._blocks(content, f"{where}.content", _TEXTS)
        return _validated(kind, fields, where)

    def _tool(self, value: object, where: str) -> object:
        if isinstance(value, dict) and value.get("type", "custom") not in ("custom", None):
            path, found = f"{where}.type", shown_value(value["type"])[:64]
            advice = "Anthropic's own tools are not known here; describe one with name and input_schema"
            raise UnsupportedFieldError(path, f"{path} {found} is not supported; {advice}")
        return self._object(ToolInput, value, where)

    def _object(self, kind: type[_Kind], value: object, where: str) -> _Kind:
        return _validated(kind, self._known(kind, value, where), where)

    def _known(self, kind: type[BaseModel], value: object, where: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise ParameterError(where, "an object", value)
        return FieldReader(_WITHIN, self._ignored).read(value, kind, (None, where))


def _validated(kind: type[_Kind], fields: dict[str, object], where: str) -> _Kind:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise explained(error.errors(include_url=False), fields, {**NEEDED_BY_FIELD, **_NEEDED}, where) from None
