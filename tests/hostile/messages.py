"""Anthropic's Messages: turns, blocks and tools without end, for an answer and for a count."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.hostile.cases import BODY_BYTES, MODEL, Case, Target
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

_PATHS = ("/v1/messages", "/v1/messages/count_tokens")
_USER = {"role": "user", "content": "a"}
_BASE = {"model": MODEL, "messages": [_USER], "max_tokens": 1}
_LONG = "hm " * (BODY_BYTES // 4)


def _text(text: str = "a") -> dict[str, Any]:
    return {"type": "text", "text": text}


def _result(content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content}


def _use(arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t", "name": "f", "input": arguments}


def _answered(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": list(blocks)}, _USER]}


MESSAGES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "2,000 turns of 20 texts": lambda: {"messages": [{"role": "user", "content": [_text()] * 20}] * 2000},
    "40,000 results of tools": lambda: {"messages": [{"role": "user", "content": [_result("a")] * 1000}] * 40},
    "a result of 1,000 texts in each of 40 blocks": lambda: {
        "messages": [{"role": "user", "content": [_result([_text()] * 1000)] * 40}]
    },
    "1,000 calls of one turn": lambda: _answered(*[_use({})] * 1000),
    "calls with a megabyte of arguments": lambda: _answered(*[_use({"a": "b" * 10_000})] * 100),
    "arguments as deep as may be": lambda: _answered(_use({"a": json.loads("[" * 180 + "]" * 180)})),
    "a megabyte of thinking": lambda: _answered({"type": "thinking", "thinking": _LONG, "signature": _LONG[:1000]}),
    "a megabyte of redacted thinking": lambda: _answered({"type": "redacted_thinking", "data": _LONG}),
    "a system of 20,000 texts": lambda: {"system": [_text()] * 20_000},
    "a system of billing headers": lambda: {"system": [_text("x-anthropic-billing-header")] * 1000},
    "blocks of 100 unknown types": lambda: {
        "messages": [{"role": "user", "content": [{"type": f"kind {i}"} for i in range(100)]}]
    },
    "128 tools of 30,000 characters": lambda: {
        "tools": [{"name": f"f{i}", "input_schema": {"a": _LONG[:30_000]}} for i in range(128)]
    },
    "cache_control of 10,000": lambda: {"system": [_text() | {"cache_control": {str(i): 1 for i in range(10_000)}}]},
    "a format of a megabyte": lambda: {"output_config": {"format": {"type": "json_schema", "schema": {"a": _LONG}}}},
    "fields of chats": lambda: {"n": 10**9, "stop": ["a"] * 10_000, "logprobs": True},
}


def cases() -> Iterator[Case]:
    """Each as one body; all of them are refused, or served as quickly as a chat."""
    for path in _PATHS:
        for name, fields in MESSAGES.items():
            yield Case(Family.BODIES, f"{path}: {name}", _posted(path, fields), short=name.startswith("40,000"))


def _posted(path: str, fields: Callable[[], dict[str, Any]]) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        body = json.dumps({**_BASE, **fields()}).encode()
        return await target.post(path, (body,), len(body))

    return drive
