"""What agents ask over each of three APIs, in each form that models write their tool calls in. Pure.

The embedded model is too small to call tools by itself, or to reason: tool choices and grammars make it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.cluster.served import MODEL

TEMPERATURE = 0.8  # of seeded requests
QUESTIONS = (
    "Tell me about the sea.",
    "What should I see in Rome, and for how many days?",
    "Say the same thing twice, and then <tool_call> or [f(1)] or {}.",
    "Write a short note to my neighbour about the garden fence.",
)
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "enum": ["Rome", "Kyoto", "the sea"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 60},
        "note": {"type": "string", "minLength": 4, "maxLength": 20},
        "quiet": {"type": "boolean"},
    },
    "required": ["place", "days", "note", "quiet"],
    "additionalProperties": False,
}
_TOOLS: Mapping[str, Any] = {"plan": _PARAMETERS, "clock": {"type": "object", "properties": {}}}
_WORDS = "[a-z ]{6,16}"
THOUGHTS: Mapping[str, str] = {  # reasoning and an answer, by the forms of models that reason
    "hermes": f"<think>{_WORDS}</think>{_WORDS}",
    "mistral": rf"\[THINK\]{_WORDS}\[/THINK\]{_WORDS}",
    "harmony": rf"<\|channel\|>analysis<\|message\|>{_WORDS}<\|end\|><\|start\|>assistant"
    rf"<\|channel\|>final<\|message\|>{_WORDS}",
}


class Api(StrEnum):
    CHATS = "/v1/chat/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


class Ask(StrEnum):
    TEXT = "text"  # tools may be called
    CALL = "call"  # of the tool that is named
    CALLS = "calls"  # at least one, of any tool
    FORMAT = "format"  # JSON of a schema
    THOUGHT = "thought"


@dataclass(frozen=True, slots=True)
class Agent:
    """A request of an agent; ``stream``: its answer is streamed."""

    api: Api
    ask: Ask
    stream: bool

    @property
    def least_tokens(self) -> int:
        """Room for what must be whole: the arguments of a call that is cut are nothing that Messages could tell."""
        return 0 if self.ask in (Ask.TEXT, Ask.CALLS) else 120


def agents_of(form: str) -> Iterator[Agent]:
    """All that there are of a model that writes calls in this form."""
    for ask in Ask:
        if ask is Ask.THOUGHT and form not in THOUGHTS:
            continue
        for api in Api:
            cut = ask is Ask.CALLS and api is Api.MESSAGES  # it may be, and then a whole answer has no text of it
            # Behind calls comes what was cut of another, and harmony's free text may have many messages: of their
            # order a whole chat tells nothing.
            ordered = ask in (Ask.FORMAT, Ask.THOUGHT) or (form != "harmony" and ask is not Ask.CALLS)
            mixed = api is Api.CHATS and not ordered
            yield from (Agent(api, ask, stream) for stream in (True, False) if not (mixed if stream else cut))


def half_of(form: str) -> list[Agent]:
    """Each request over each API once, streamed or whole in turn, where it can be both."""
    both = dict[tuple[Ask, Api], list[Agent]]()
    for agent in agents_of(form):
        both.setdefault((agent.ask, agent.api), []).append(agent)
    return [each[i % len(each)] for i, each in enumerate(both.values())]


def asked(agent: Agent, question: int, tokens: int, seed: int, form: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": MODEL, "temperature": 0.0, "stream": agent.stream, **_reasoning(agent, form)}
    if seed:
        fields |= {"temperature": TEMPERATURE, "top_p": 1.0, "seed": seed}
    if agent.ask is Ask.TEXT:
        fields["ignore_eos"] = True
    if agent.ask is Ask.THOUGHT:
        fields["structured_outputs"] = {"regex": THOUGHTS[form]}
    ask = {Api.CHATS: _chat, Api.RESPONSES: _response, Api.MESSAGES: _message}[agent.api]
    return fields | ask(agent, QUESTIONS[question % len(QUESTIONS)], max(tokens, agent.least_tokens))


def _reasoning(agent: Agent, form: str) -> dict[str, Any]:
    """Only where it is asked for: what Messages does by itself."""
    if agent.ask is Ask.THOUGHT:
        return {"thinking": {"type": "enabled"}} if agent.api is Api.MESSAGES else {}
    if agent.api is Api.CHATS:
        return {"chat_template_kwargs": {"enable_thinking": False}}
    own_effort = form == "harmony" or agent.api is Api.MESSAGES  # which harmony's prompts tell
    return {} if own_effort else {"reasoning": {"effort": "none"}}


def _chat(agent: Agent, question: str, tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": question}], "max_tokens": tokens}
    body |= {"return_token_ids": True}
    if agent.stream:
        body["stream_options"] = {"include_usage": True}
    if agent.ask is Ask.FORMAT:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "plan", "schema": _PARAMETERS}}
    if agent.ask in (Ask.TEXT, Ask.CALL, Ask.CALLS):
        functions = (_tool(name, "parameters") for name in _TOOLS)
        body["tools"] = [{"type": "function", "function": each} for each in functions]
    if agent.ask is Ask.CALL:
        body["tool_choice"] = {"type": "function", "function": {"name": "plan"}}
    return body | ({"tool_choice": "required"} if agent.ask is Ask.CALLS else {})


def _response(agent: Agent, question: str, tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {"input": question, "max_output_tokens": tokens, "store": False, "return_token_ids": True}
    if agent.ask is Ask.FORMAT:
        body["text"] = {"format": {"type": "json_schema", "name": "plan", "schema": _PARAMETERS}}
    if agent.ask in (Ask.TEXT, Ask.CALL, Ask.CALLS):
        body["tools"] = [{"type": "function", **_tool(name, "parameters")} for name in _TOOLS]
    if agent.ask is Ask.CALL:
        body["tool_choice"] = {"type": "function", "name": "plan"}
    return body | ({"tool_choice": "required"} if agent.ask is Ask.CALLS else {})


def _tool(name: str, schema: str) -> dict[str, Any]:
    return {"name": name, schema: _TOOLS[name], "strict": False}  # Responses' default is true, and prompts tell it


def _message(agent: Agent, question: str, tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": question}], "max_tokens": tokens}
    if agent.ask is Ask.FORMAT:
        body["output_config"] = {"format": {"type": "json_schema", "schema": _PARAMETERS}}
    if agent.ask in (Ask.TEXT, Ask.CALL, Ask.CALLS):
        body["tools"] = [_tool(name, "input_schema") for name in _TOOLS]
    if agent.ask is Ask.CALL:
        body["tool_choice"] = {"type": "tool", "name": "plan"}
    return body | ({"tool_choice": {"type": "any"}} if agent.ask is Ask.CALLS else {})
