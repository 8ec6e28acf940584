"""Tools: what a request offers, how the model's family presents them, and how calls are enforced.

A model's *form* is how it writes calls; ``formats`` has them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json

from outrider.contracts.errors import ParameterError
from serve_app.api.http_errors import UnsupportedFieldError
from serve_app.api.openai.bodies import ChatBody, ChatMessage
from serve_app.api.openai.tools.formats.base import NO_MARKS, Marks, Tool, regex_of, spelled
from serve_app.api.openai.tools.formats.registry import FORMS

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")  # Anthropic's length
_MOST_NAME_CHARS = 64  # OpenAI's
_NAME_NEEDED = f"a name of letters, digits, _, - and ., at most {_MOST_NAME_CHARS} (128 in /v1/messages)"
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}  # OpenAI's, of those left out
_SHORT_ID = 9
_ANY_OBJECT = {"type": "object"}
ANSWER_LINE = 2  # of ``either_rules``; those behind it are of calls
ADVICE = {  # on OpenAI's other kinds of tools
    "custom": "send a function with one parameter, a text such as 'input'",
    "namespace": "send its functions as tools of their own",
}
_CHOICES = "'none', 'auto', 'required' or {'type': 'function', 'function': {'name': ...}}"


def read_tools(body: ChatBody, form: str) -> tuple[Tool, ...]:
    """Read the tools that are presented to the model; empty if it may not call any.

    Raises:
        UnsupportedFieldError: the form of this model's calls is unknown.
        ParameterError: a tool or ``tool_choice`` is invalid.
    """
    choice, offered = body.tool_choice, body.tools or []
    if not offered:
        if choice not in (None, "none", "auto"):
            raise ParameterError("tool_choice", "tools to choose from", choice)
        return ()
    if form not in FORMS:
        raise UnsupportedFieldError(
            "tools",
            "tools is not supported by this model: its chat template writes calls in no known form "
            f"({', '.join(FORMS)}); describe the tools in the prompt, or set structured.tool_format",
        )
    tools = tuple(_tool(f"tools[{i}]", one) for i, one in enumerate(offered))
    if isinstance(choice, str | None) and choice not in (None, "none", "auto", "required"):
        raise ParameterError("tool_choice", _CHOICES, choice)
    if isinstance(choice, dict) and _named(choice) not in {tool.name for tool in tools}:
        raise ParameterError("tool_choice", f"{_CHOICES}, one of {', '.join(tool.name for tool in tools)}", choice)
    return () if choice == "none" else tools


def check_names(body: ChatBody) -> None:
    """Refuse longer names of tools than OpenAI takes; Anthropic's may be twice as long.

    Raises:
        ParameterError: one is.
    """
    for i, tool in enumerate(body.tools or ()):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and len(name) > _MOST_NAME_CHARS:
            raise ParameterError(f"tools[{i}].function.name", _NAME_NEEDED, name)


def must_call(body: ChatBody, tools: Sequence[Tool]) -> bool:
    """Whether an answer must call one of ``tools``, which are those that are presented, as of the following."""
    return bool(tools) and body.tool_choice not in (None, "auto")


def forced_rules(body: ChatBody, tools: Sequence[Tool], form: str, marks: Marks = NO_MARKS) -> str:
    """Grammar rules of an answer that must call a tool."""
    choice = body.tool_choice
    several = choice == "required" and body.parallel_tool_calls is not False
    allowed = [tool for tool in tools if not isinstance(choice, dict) or tool.name == _named(choice)]
    return "\n".join(["start: calls", *FORMS[form].rules(allowed, marks, several=several)])


def either_rules(body: ChatBody, tools: Sequence[Tool], form: str, answer: str, marks: Marks = NO_MARKS) -> str:
    """Grammar rules of an answer that calls tools, or is in a format of these symbols."""
    calls = FORMS[form].rules(_held(tools, form), marks, several=body.parallel_tool_calls is not False)
    return "\n".join(["start: calls | answer", f"answer: {FORMS[form].answer_head(marks)} {answer}", *calls])


def _held(tools: Sequence[Tool], form: str) -> list[Tool]:
    """Tools that may be called: strict ones are held to their schemas, in forms that do so without a format as well."""
    is_held = FORMS[form].trigger is not None
    return [tool if tool.strict and is_held else replace(tool, parameters=_ANY_OBJECT) for tool in tools]


def strict_rules(body: ChatBody, tools: Sequence[Tool], form: str, marks: Marks = NO_MARKS) -> str | None:
    """Grammar rules of an answer that may call tools, of which one is strict; None where the form has no such rules."""
    trigger = FORMS[form].trigger if any(tool.strict for tool in tools) else None
    if trigger is None:
        return None
    # The first rule is that of answers that are calls only.
    _, *rules = FORMS[form].rules(_held(tools, form), marks, several=False)
    mark, text = marks.get(trigger), regex_of(trigger)
    is_token = mark is not None and mark.token_id is not None
    before = f"TEXT? {spelled(trigger, marks)}" if is_token else "BEFORE"
    several = "?" if body.parallel_tool_calls is False else "*"
    own = [f"BEFORE: /(.|\\n)*{text}/ & ~/(.|\\n)*{text}(.|\\n)+/"] if not is_token else []
    text_rule = f"TEXT: /(.|\\n)+/ & ~/(.|\\n)*{text}(.|\\n)*/"
    return "\n".join([f"start: ({before} call){several} TEXT?", text_rule, *own, *rules])


def with_tools(
    messages: Sequence[ChatMessage], tools: Sequence[Tool], template: str, form: str
) -> list[dict[str, Any]]:
    """Convert messages for a chat template; for one without tool support, calls and results become texts."""
    chat = [_plain(message, template) for message in messages]
    if "tools" in template or not (tools or any(message.tool_calls or message.tool_call_id for message in messages)):
        return chat
    chat = [_as_text(message, form) for message in chat]
    if tools:
        system = chat.pop(0)["content"] + "\n\n" if chat[0]["role"] == "system" else ""
        chat.insert(0, {"role": "system", "content": system + _described(tools, form)})
    return chat


def _plain(message: ChatMessage, template: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": _role(message.role, template), "content": message.text}
    if message.name is not None:
        plain["name"] = message.name
    short = "length != 9" in template  # Mistral's: no other ids are taken
    if message.tool_calls:
        calls = [_call(f"messages[].tool_calls[{i}]", one) for i, one in enumerate(message.tool_calls)]
        plain["tool_calls"] = [{**call, "id": _short(call.get("id"))} for call in calls] if short else calls
    if message.tool_call_id is not None:
        plain["tool_call_id"] = _short(message.tool_call_id) if short else message.tool_call_id
    return plain


def _short(call_id: object) -> str:
    """An id of nine letters and digits: equal ones of equal ids."""
    known = isinstance(call_id, str) and len(call_id) == _SHORT_ID and call_id.isalnum()
    return str(call_id) if known else blake2b(str(call_id).encode(), digest_size=8).hexdigest()[:_SHORT_ID]


def _role(role: str, template: str) -> str:
    """The role, or ``system`` for OpenAI's newer name if the template does not know that."""
    known = role != "developer" or any(mark in template for mark in ("'developer'", '"developer"'))
    return role if known else "system"


def _call(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A call with its arguments as an object, which templates expect; one that was cut has what came of it."""
    function = given.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ParameterError(where, "a function with a name and arguments", function)
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, str):
        with suppress(ValueError):  # what was cut may be no JSON at all: the template gets the text
            arguments = from_json(arguments or "{}", allow_partial="trailing-strings")
    return {**given, "function": {**function, "arguments": arguments}}


def _as_text(message: Mapping[str, Any], form: str) -> dict[str, Any]:
    written, content = FORMS.get(form, FORMS["hermes"]), message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [
        written.written(call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    ]
    parts = [part for part in (content, written.between.join(calls)) if part]
    return {"role": message["role"], "content": "\n".join(parts)}


def _described(tools: Sequence[Tool], form: str) -> str:
    functions = "\n".join(json.dumps(tool.given, ensure_ascii=False) for tool in tools)
    call = FORMS[form].example
    return f"You may call functions. Those there are:\n<tools>\n{functions}\n</tools>\nA call is written as:\n{call}"


def _tool(where: str, given: Mapping[str, Any]) -> Tool:
    function = given.get("function")
    if given.get("type") != "function" or not isinstance(function, dict):
        advice = ADVICE.get(str(given.get("type")))
        needed = "{'type': 'function', 'function': {...}}" + (f" ({advice})" if advice else "")
        raise ParameterError(where, needed, json.dumps(given)[:100])
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(f"{where}.function.name", _NAME_NEEDED, name)
    if parameters is not None and not isinstance(parameters, dict):
        raise ParameterError(f"{where}.function.parameters", "a JSON schema of an object", parameters)
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise ParameterError(f"{where}.function.strict", "true or false", strict)
    return Tool(name, _NO_PARAMETERS if parameters is None else parameters or _ANY_OBJECT, given, strict is True)


def _named(choice: Mapping[str, Any]) -> str | None:
    function = choice.get("function")
    return function.get("name") if choice.get("type") == "function" and isinstance(function, dict) else None
