"""Reading of the Messages API's requests as chats.

A turn's results of tools become messages of their own; what a chat cannot say is refused by name. Errors have the
request's own names of fields.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from outrider.contracts.errors import ParameterError
from serve_app.api.api_forms import ApiForm, ReadRequest, named_by, renamed_head
from serve_app.api.http_errors import MissingFieldError, UnsupportedFieldError
from serve_app.api.messages.bodies import CountTokensBody, MessagesBody, ToolInput, ToolSelection
from serve_app.api.messages.fields import read_message_fields
from serve_app.api.messages.turns import chat_messages
from serve_app.api.messages.writing import MessageWriter, failure_of
from serve_app.api.openai.bodies import ChatBody, StreamOptions
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.parsing import check_arguments, check_model, read_object
from serve_app.api.service import RequestLimits

_Counted = TypeVar("_Counted", bound=CountTokensBody)
_TRANSLATED = {"messages", "tools", "tool_choice", "metadata", "service_tier", "chat_template_kwargs"}
_SAME = (MessagesBody.model_fields.keys() & ChatBody.model_fields.keys()) - _TRANSLATED
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_OWN_NAMES = {
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "reasoning_effort": "output_config.effort",
    "response_format": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
_FORMAT = "{'type': 'json_schema', 'schema': {...}}"


def read_messages(content: bytes, limits: RequestLimits, ignored: IgnoredFields) -> ReadRequest:
    """Read a body of ``POST /v1/messages``.

    Raises:
        OutriderError: as ``parse_body``; or a kind of content, tool or turn that is not supported.
    """
    body = _checked(read_message_fields(read_object(content, limits), MessagesBody, ignored), limits)
    values = {name: getattr(body, name) for name in body.model_fields_set & _SAME}
    values |= _prompt(body, limits, ignored, len(content))
    values["stop"] = body.stop_sequences
    if body.metadata is not None and body.metadata.user_id is not None:
        values["user"] = body.metadata.user_id
    if body.service_tier is not None:
        values["service_tier"] = "default" if body.service_tier == "standard_only" else body.service_tier
    if body.output_config is not None and body.output_config.format is not None:
        values["response_format"] = _format(body.output_config.format)
    if body.stream:
        values["stream_options"] = StreamOptions(include_usage=True)
    _check_answer(body)
    for name in ("context_management", "speed"):
        if getattr(body, name) is not None:
            ignored.tell(name)
    shows = body.thinking is None or body.thinking.display != "omitted"
    # Not validated again: each part has been.
    return ReadRequest(ChatBody.model_construct(**values), own_name, partial(MessageWriter, shows_thinking=shows))


MESSAGES = ApiForm("/v1/messages", "msg_", read_messages, lambda answer, request_id: {**failure_of(answer, request_id)})


def read_counted(content: bytes, limits: RequestLimits, ignored: IgnoredFields) -> ChatBody:
    """Read a body of ``POST /v1/messages/count_tokens``; raises as ``read_messages`` does.

    What only an answer depends on is passed over.
    """
    data, counted = read_object(content, limits), dict[str, object]()
    for name, value in data.items():
        if name in MessagesBody.model_fields and name not in CountTokensBody.model_fields:
            ignored.tell(name)
        else:
            counted[name] = value
    body = _checked(read_message_fields(counted, CountTokensBody, ignored), limits)
    return ChatBody.model_construct(model=body.model, **_prompt(body, limits, ignored, len(content)))


def own_name(field: str) -> str:
    """The Messages API's name of a chat's field, by its path."""
    if field.startswith("tools["):
        return field.replace(".function.parameters", ".input_schema").replace(".function", "")
    if field.startswith("messages[]"):
        return "messages"
    head = renamed_head(field, _OWN_NAMES)
    if head is None:
        return field
    return _OWN_NAMES[head] + field.removeprefix(head).removeprefix(".json_schema")


def _checked(body: _Counted, limits: RequestLimits) -> _Counted:
    check_model(body.model, limits)
    return body


def _prompt(body: CountTokensBody, limits: RequestLimits, ignored: IgnoredFields, body_bytes: int) -> dict[str, Any]:
    """A chat's fields that make its prompt, and how tools are called."""
    messages = chat_messages(body.system, body.messages, ignored)
    with named_by(own_name):
        check_arguments(messages, limits, body_bytes)
    values: dict[str, Any] = {"messages": messages}
    if body.tools:
        values["tools"] = [_tool(tool) for tool in body.tools]
    if body.tool_choice is not None:
        values |= _choice(body.tool_choice)
    if variables := _variables(body, ignored):
        values["chat_template_kwargs"] = variables
    if body.output_config is not None and body.output_config.effort is not None:
        values["reasoning_effort"] = body.output_config.effort
    return values


def _choice(choice: ToolSelection) -> dict[str, Any]:
    if choice.type == "tool" and choice.name is None:
        raise MissingFieldError("tool_choice.name", "tool_choice.name is missing; it needs the name of a tool")
    if choice.type != "tool" and choice.name is not None:
        raise ParameterError("tool_choice.name", "tool_choice.type 'tool'", choice.name)
    named = {"type": "function", "function": {"name": choice.name}}
    values: dict[str, Any] = {"tool_choice": named if choice.type == "tool" else _CHOICES[choice.type]}
    return values | ({"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {})


def _variables(body: CountTokensBody, ignored: IgnoredFields) -> dict[str, Any]:
    """The chat template's variables. Without ``thinking`` there is none; ``adaptive`` leaves the template's default.

    Thinking has no budget but ``max_tokens``.
    """
    variables, thinking = dict(body.chat_template_kwargs or {}), body.thinking
    if thinking is None:
        return {"enable_thinking": False, **variables}
    if thinking.budget_tokens is not None:
        ignored.tell("thinking.budget_tokens")
    if thinking.type != "adaptive":
        thinks = thinking.type == "enabled"
        if variables.setdefault("enable_thinking", thinks) is not thinks:
            raise ParameterError("thinking.type", "to agree with chat_template_kwargs.enable_thinking", thinking.type)
    return variables


def _tool(tool: ToolInput) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    schema = given.get("schema")
    if given.get("type") != "json_schema" or not isinstance(schema, dict):
        raise ParameterError("output_config.format", _FORMAT, dict(given))
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": True}}


def _check_answer(body: MessagesBody) -> None:
    """Refuse what this API's answers have no place for.

    Raises:
        UnsupportedFieldError: reports on tokens, or an answer that continues a turn of the request.
    """
    for name in ("spans", "details"):
        if getattr(body.outrider, name):
            field = f"outrider.{name}"
            raise UnsupportedFieldError(field, f"{field} is not supported by this API; use /v1/chat/completions")
    if body.messages[-1].role == "assistant":
        field = f"messages[{len(body.messages) - 1}].role"
        advice = "an answer cannot continue the last turn; end with a turn of the user"
        raise UnsupportedFieldError(field, f"{field} 'assistant' is not supported yet; {advice}")
