"""Reading of a Responses request as a chat."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.contracts.errors import ParameterError
from serve_app.api.api_forms import renamed_head
from serve_app.api.http_errors import MissingFieldError, UnsupportedFieldError
from serve_app.api.openai.bodies import MAX_TOOLS, ChatBody, StreamOptions
from serve_app.api.openai.fields.ignored import MOST_NAME_CHARS, IgnoredFields
from serve_app.api.openai.parsing import as_chat, check_model, read_fields, read_object
from serve_app.api.openai.tools.request import ADVICE
from serve_app.api.responses.bodies import LOGPROBS, RULES, SHARED, ResponsesBody
from serve_app.api.responses.items import Messages, check_kinds
from serve_app.api.service import RequestLimits

_CHOICES = "'none', 'auto', 'required', {'type': 'function', 'name': ...} or {'type': 'allowed_tools', ...}"
_FUNCTIONS = "tools are functions that you call yourself"
_OF_TOOL = ("name", "description", "parameters", "strict")
_MESSAGE = re.compile(r"messages\[(\d+)\]")
_OWN: Mapping[str, str] = {  # by a chat's field; the longest one that a path begins with
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "logprobs": "include",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}


def read_responses_body(content: bytes, limits: RequestLimits, ignored: IgnoredFields) -> ResponsesBody:
    """Read a body; raises as ``parse_body`` and ``check_kinds`` do."""
    data = read_object(content, limits)
    check_kinds(data.get("input"))
    body = read_fields(data, ResponsesBody, ignored, RULES)
    check_model(body.model, limits)
    if body.stream_options is not None and not body.stream:
        raise ParameterError("stream_options", "stream: true", {})
    if body.top_logprobs and LOGPROBS not in body.include:
        raise ParameterError("top_logprobs", f"include: ['{LOGPROBS}']", body.top_logprobs)
    if any(name != LOGPROBS for name in body.include):
        ignored.tell("include")
    return body


def messages_of(body: ResponsesBody, ignored: IgnoredFields) -> Messages:
    """The instructions and the input as messages; raises as ``Messages.add`` does."""
    messages = Messages()
    if body.instructions is not None:
        messages.begin({"role": "system", "content": body.instructions}, "instructions")
    if isinstance(body.input, str):
        messages.begin({"role": "user", "content": body.input}, "input")
        return messages
    for i, item in enumerate(body.input):
        messages.add(item, f"input[{i}]", ignored)
    return messages


def chat_of(
    body: ResponsesBody, messages: Sequence[Mapping[str, Any]], limits: RequestLimits, ignored: IgnoredFields
) -> ChatBody:
    """The request as a chat; raises as ``parse_body`` does, with a chat's names of fields."""
    offered, choice = _tools(body, ignored)
    fields: dict[str, Any] = {name: getattr(body, name) for name in SHARED if name in body.model_fields_set}
    fields |= {
        "messages": messages,
        "tools": offered,
        "tool_choice": choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "max_tokens": body.max_output_tokens,
        "response_format": _format(body.text.format),
        "verbosity": body.text.verbosity,
        "reasoning_effort": body.reasoning.effort,
        "logprobs": LOGPROBS in body.include,
        "top_logprobs": body.top_logprobs,
        "stream_options": StreamOptions(include_usage=body.stream),
    }
    return as_chat({name: value for name, value in fields.items() if value is not None}, limits)


def own_field(path: str, origins: Sequence[str]) -> str:
    """The request's own path of a chat's field: ``input[5].content`` of ``messages[3].content``."""
    if (found := _MESSAGE.match(path)) is not None and int(found[1]) < len(origins):
        origin, rest = origins[int(found[1])], path[found.end() :]
        return origin if "[" not in origin or rest.startswith(".tool_calls") else origin + rest
    own = renamed_head(path, _OWN)
    if own is not None:
        return "input" if own == "messages" else _OWN[own] + path.removeprefix(own)
    return path.replace("].function", "]") if path.startswith("tools[") else path


def _format(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None or given.get("type") != "json_schema":
        return None if given is None else dict(given)
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if name != "type"}}


def _tools(body: ResponsesBody, ignored: IgnoredFields) -> tuple[list[dict[str, Any]] | None, Any]:
    """Tools and choice as chats have them, without searches that are not to be made."""
    tools = [
        _tool(given, f"tools[{i}]", ignored)
        for i, given in enumerate(body.tools or ())
        if not unused_search(given, body.tool_choice)
    ]
    if any(unused_search(given, body.tool_choice) for given in body.tools or ()):
        ignored.tell("tools.type.web_search")
    choice = body.tool_choice
    if not isinstance(choice, dict):
        return tools or None, choice
    match choice.get("type"):
        case "function":
            _check_named(choice.get("name"), tools, "tool_choice.name")
            return tools, {"type": "function", "function": {"name": choice["name"]}}
        case "allowed_tools":
            return _allowed(tools, choice)
    raise ParameterError("tool_choice", _CHOICES, choice)


def unused_search(tool: Mapping[str, Any], choice: object) -> bool:
    """Whether it is OpenAI's search, and the model need not call it: agents send it whether they want it or not."""
    kind = tool.get("type")
    return choice in (None, "auto", "none") and isinstance(kind, str) and kind.startswith("web_search")


def _check_named(name: object, tools: Sequence[dict[str, Any]], path: str) -> None:
    if not any(tool["function"]["name"] == name for tool in tools):
        raise ParameterError(path, "the name of one of the tools", name)


def _allowed(tools: Sequence[dict[str, Any]], choice: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Only the tools that may be called are presented."""
    mode, listed = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required") or not isinstance(listed, list) or not listed:
        raise ParameterError("tool_choice", "allowed_tools with a mode, 'auto' or 'required', and tools", choice)
    if len(listed) > MAX_TOOLS:
        raise ParameterError("tool_choice.tools", f"at most {MAX_TOOLS} entries", len(listed))
    names = [each.get("name") if isinstance(each, dict) else None for each in listed]
    for i, name in enumerate(names):
        _check_named(name, tools, f"tool_choice.tools[{i}].name")
    return [tool for tool in tools if tool["function"]["name"] in names], mode


def _tool(given: Mapping[str, Any], path: str, ignored: IgnoredFields) -> dict[str, Any]:
    kind = given.get("type")
    if kind != "function":
        if not isinstance(kind, str):
            raise ParameterError(f"{path}.type", "'function'", kind)
        shown = f"{path}.type {kind[:64]!r}"
        raise UnsupportedFieldError(f"{path}.type", f"{shown} is not supported: {ADVICE.get(kind, _FUNCTIONS)}")
    if given.get("name") is None:
        raise MissingFieldError(f"{path}.name", f"{path}.name is missing; it needs the function's name")
    for name in given:
        if name not in (*_OF_TOOL, "type"):
            ignored.add(f"{path}.{name[:MOST_NAME_CHARS]}", name, _OF_TOOL)
    return {"type": "function", "function": {name: given[name] for name in _OF_TOOL if given.get(name) is not None}}
