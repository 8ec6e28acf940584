"""Reasoning and tools: marks, schemas of strict tools and calls of earlier turns at sizes that hurt."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.hostile.cases import BODY_BYTES, MODEL, TEXT_BYTES, Case, Target
from tests.hostile.grammars import SCHEMAS
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

_ROUTE = "/v1/chat/completions"
_MARKS = (
    "<think></think><tool_call><function=f></function></tool_call>[THINK][TOOL_CALLS]<|channel|>analysis<|message|>"
)


def _strict(parameters: object, count: int = 1) -> dict[str, Any]:
    functions = [{"name": f"f{i}", "parameters": parameters, "strict": True} for i in range(count)]
    return {"tools": [{"type": "function", "function": function} for function in functions]}


def _turn(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a", **fields}]}


def _call(arguments: object) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


OTHERS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "128 strict tools": lambda: _strict({"type": "object", "properties": {"a": {"enum": list(range(60))}}}, 128),
    "32 strict tools of 8 values": lambda: _strict({"type": "object", "properties": {"a": {"enum": [*range(8)]}}}, 32),
    "40 strict tools without bound": lambda: _strict({}, 40),  # 128 are a prompt of 3,545 tokens
    "a strict tool beside a schema": lambda: {**_strict({}), "response_format": {"type": "json_object"}},
    "marks for a prompt": lambda: _turn(reasoning_content=_MARKS * (BODY_BYTES // 8 // len(_MARKS))),
    "marks for a stop string": lambda: {"stop": ["<", "</", "</think>", "<tool_call>"], "max_tokens": 64},
    "128 calls of marks": lambda: _turn(tool_calls=[_call(json.dumps({"a": _MARKS * 20}))] * 128),
    "calls of deep arguments": lambda: _turn(tool_calls=[_call('{"a":' + "[" * (TEXT_BYTES // 2))]),
    "reasoning left out and counted": lambda: {"include_reasoning": False, "reasoning_effort": "none", "n": 4},
    "thinking of odd types": lambda: {
        "chat_template_kwargs": {"enable_thinking": [{"a": None}], "thinking": "x" * 4096}
    },
}
_SHORT = frozenset({"128 strict tools", "a strict tool: maxItems 10^9", "marks for a prompt"})


def cases() -> Iterator[Case]:
    """Each schema as that of a strict tool, then the others."""
    for name, schema in SCHEMAS.items():
        yield _case(f"a strict tool: {name}", lambda schema=schema: _strict(schema), Family.GRAMMARS)  # type: ignore[misc]
    for name, fields in OTHERS.items():
        yield _case(name, fields, Family.BODIES)


def _case(name: str, fields: Callable[[], dict[str, Any]], family: Family) -> Case:
    async def drive(target: Target) -> Answer:
        sound = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        body = json.dumps({**sound, **fields()}).encode()
        return await target.post(_ROUTE, (body,), len(body))

    return Case(family, name, drive, name in _SHORT)
