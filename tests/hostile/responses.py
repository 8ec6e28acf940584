"""Responses: items without end, of one turn or of many, and what an answer repeats of its request."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.hostile.cases import BODY_BYTES, MODEL, Case, Target
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

_PATH = "/v1/responses"
_BASE = {"model": MODEL, "input": "a", "max_output_tokens": 1}
_USER = {"role": "user", "content": "a"}
_LONG = "hm " * (BODY_BYTES // 4)


def _call(number: int, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": arguments}


def _thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text}]}


FIELDS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "4,000 messages": lambda: {"input": [_USER] * 4000},
    "50,000 messages": lambda: {"input": [_USER] * 50_000},
    "4,000 pieces of reasoning of one turn": lambda: {"input": [_thought("hm " * 300)] * 3999 + [_USER]},
    "a megabyte of reasoning": lambda: {"input": [_thought(_LONG), _USER]},
    "4,000 calls of one turn": lambda: {"input": [_USER, *map(_call, range(3999))]},
    "calls with long arguments": lambda: {
        "input": [_USER, *(_call(i, json.dumps({"a": "b" * 900})) for i in range(3999))]
    },
    "1,000 parts in each of 40 items": lambda: {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 1000}] * 40
    },
    "a result of 100,000 parts": lambda: {
        "input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}] * 100_000}]
    },
    "scores of an earlier answer": lambda: {
        "input": [
            {"role": "assistant", "content": [{"type": "output_text", "text": "a", "logprobs": [{}] * 40_000}]},
            _USER,
        ]
    },
    "items of 100 unknown types": lambda: {"input": [{"type": f"kind {i}"} for i in range(100)]},
    "instructions of a megabyte": lambda: {"instructions": _LONG},
    "tools that are repeated and not used": lambda: {
        "tool_choice": "none",
        "stream": True,
        "tools": [{"type": "function", "name": f"f{i}", "parameters": {"a": _LONG[:30_000]}} for i in range(100)],
    },
    "128 allowed of 128 tools": lambda: {
        "tools": [{"type": "function", "name": f"f{i}"} for i in range(128)],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": f"f{i % 128}"} for i in range(10_000)],
        },
    },
    "a format of a megabyte": lambda: {
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"a": _LONG}}}
    },
    "another's names of fields": lambda: {"messages": [_USER] * 2000, "max_tokens": 10**9, "n": 10**9},
}


def cases() -> Iterator[Case]:
    """Each as one body; all of them are refused, or served as quickly as a chat."""
    for name, fields in FIELDS.items():
        yield Case(Family.BODIES, f"{_PATH}: {name}", _asked(fields), short=name.startswith(("4,000 pieces", "tools")))


def _asked(fields: Callable[[], dict[str, Any]]) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        body = json.dumps({**_BASE, **fields()}).encode()
        return await target.post(_PATH, (body,), len(body))

    return drive
