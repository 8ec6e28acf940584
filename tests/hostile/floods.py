"""Floods: more of one key than there is room for, and reads that need no key; another key goes on beside them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from tests.hostile.agents import CHAT
from tests.hostile.cases import ANSWER_WITHIN_S, MODEL, Case, Target, worst
from tests.hostile.connections import together
from tests.hostile.grammars import LARK, REGEXES, SCHEMAS, request_with
from tests.hostile.planted.sitecustomize import LOOPS
from tests.hostile.promises import Family
from tests.hostile.raw_http import SILENT, Answer, ask, head_of

_LASTS_S, _SHORT_S = 20.0, 8.0
_READS_AT_ONCE, _READ_LASTS_S = 48, 6.0
_ROUTE = "/v1/completions"
_TOKENS = 24  # of each response: another key waits for one of them at most
_SLOW_MASKS = (
    "start: ("
    + "|".join(f"T{i}" for i in range(300))
    + ")+\n"
    + "\n".join(f"T{i}: /.*[{chr(97 + i % 26)}{chr(97 + 7 * i % 26)}].{{{i % 50 + 3}}}/" for i in range(300))
)
_LONG_PROMPT = [(7 * i) % 40_000 + 100 for i in range(6000)]

FLOODS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "1,000 requests that wait": (1000, {"prompt": "Count to a hundred: "}),
    "one request of 16 x 4 choices": (1, {"prompt": ["a", "b", "c", "d"], "n": 16, "max_tokens": 200}),
    "8 requests of 16 x 4 choices": (8, {"prompt": ["a", "b", "c", "d"], "n": 16}),
    "12,000 prompt tokens": (1, {"prompt": [_LONG_PROMPT, _LONG_PROMPT[::-1]], "max_tokens": 1}),
    "64 prompts of 6,000 tokens": (1, {"prompt": [_LONG_PROMPT[i:] for i in range(64)], "max_tokens": 1}),
    "32 with echo and logprobs": (
        4,
        {"prompt": [_LONG_PROMPT[:500]] * 8, "echo": True, "logprobs": 20, "max_tokens": 1},
    ),
    "64 texts of a million characters": (64, {"prompt": "a b " * 250_000}),
    "usage with every event": (
        2,
        {"n": 16, "prompt": "a", "stream": True, "max_tokens": 300, "outrider": {"explain": True}}
        | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
    "stop strings of 16 x 1,024": (
        16,
        {"stop": [" a" * 511 + str(i) for i in range(16)], "prompt": "a", "max_tokens": 300},
    ),
    "logit_bias of 1,024": (32, {"logit_bias": {str(i): -100 for i in range(1024)}, "prompt": "a", "n": 4}),
    "n=16 with a choice of two": (8, {"guided_choice": ["yes", "no"], "n": 16, "prompt": "a"}),
    "64 responses whose masks take 20 ms each": (16, {"guided_grammar": _SLOW_MASKS, "prompt": "a", "n": 4}),
    "promised speeds for all": (200, {"prompt": "a", "outrider": {"slo_class": "speed_8"}}),
    "a cache key for each request": (200, {"prompt": "a", "prompt_cache_key": "NUMBER"}),
    "the first priority for each request": (200, {"prompt": "a", "priority": -(2**31) + 1, "service_tier": "priority"}),
    "128 stop ids for each of 64 choices": (16, {"prompt": "a", "n": 4, "stop_token_ids": list(range(5, 133))}),
    "ids of all tokens of 64 choices": (16, {"prompt": _LONG_PROMPT[:2000], "n": 4, "return_token_ids": True}),
    "a request id for each request": (200, {"prompt": "a", "request_id": "NUMBER"}),
    "20 unknown fields for each request": (200, {"prompt": "a"} | {f"nobody{i}NUMBER": 1 for i in range(20)}),
    "a user for each request": (200, {"prompt": "a", "user": "NUMBER"}),
    "a salt for each request": (200, {"prompt": "a " * 400, "cache_salt": "NUMBER"}),
}
_CHAT = [{"role": "user", "content": "a b c " * 50}] * 200
ELSEWHERE: Mapping[str, tuple[str, int, dict[str, Any]]] = {  # by route
    "1,000 texts to tokenise": ("/tokenize", 1000, {"prompt": "a b " * 5000}),
    "200 chats to tokenise": ("/v1/tokenize", 200, {"messages": _CHAT}),
    "48 templates that loop": (CHAT, 48, {"messages": _CHAT[:1], "chat_template_kwargs": {LOOPS: 90_000}}),
    "48 templates that loop, to tokenise": (
        "/v1/tokenize",
        48,
        {"messages": _CHAT[:1], "chat_template_kwargs": {LOOPS: 90_000}},
    ),
}
_SHORT = frozenset({"1,000 requests that wait", "one request of 16 x 4 choices"})
_READS = (
    "/health",
    "/ready",
    "/status",
    "/metrics",
    "/load",
    "/ping",
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/docs",
    "/openapi.json",
    "/v1/models",
    "/",
    "/nowhere",
)


def cases() -> Iterator[Case]:
    """Each as long as its requests last, at most some seconds; then all of them hang up."""
    for name, (count, fields) in FLOODS.items():
        yield Case(Family.FLOODS, name, _flood(count, fields, name in _SHORT), name in _SHORT, may_fail=True)
    for name, (route, count, fields) in ELSEWHERE.items():
        yield Case(Family.FLOODS, f"{route}: {name}", _flood(count, fields, short=False, route=route), may_fail=True)
    flows = _flood(200, {"prompt": "a"}, short=False, header="x-llm-d-inference-fairness-id")
    yield Case(Family.FLOODS, "a fairness id for each request", flows, may_fail=True)
    yield Case(Family.FLOODS, "64 hostile grammars at once", _grammars, may_fail=True)
    yield Case(Family.FLOODS, "20 refused requests a second, counted", _refused, may_fail=True)
    for path in _READS:
        yield Case(Family.READS, f"{_READS_AT_ONCE} connections read {path}", _reads(path), path == "/status")


def keyless_cases() -> Iterator[Case]:
    """The same of a service that asks for no keys, where nothing but the address tells people apart."""
    for name in ("1,000 requests that wait", "12,000 prompt tokens"):
        count, fields = FLOODS[name]
        yield Case(Family.KEYLESS, f"without keys: {name}", _flood(count, fields, short=True), may_fail=True)
    for path in _READS:
        yield Case(Family.KEYLESS, f"without keys: {_READS_AT_ONCE} connections read {path}", _reads(path))


def _flood(
    count: int, fields: Mapping[str, Any], short: bool, header: str = "", route: str = _ROUTE
) -> Callable[[Target], Awaitable[Answer]]:
    """``header`` has another value in each request."""

    async def drive(target: Target) -> Answer:
        number = iter(range(count))

        async def one() -> Answer:
            free = not any(name.startswith("guided") for name in fields)
            said = {} if "tokenize" in route else {"max_tokens": _TOKENS, "ignore_eos": free}
            content = {"model": MODEL, **said, **fields}
            own = f"u{next(number)}"
            body, more = json.dumps(content).replace("NUMBER", own).encode(), [f"{header}: {own}"] if header else []
            return await ask(target.port, [head_of(route, target.key, len(body), more=more), body], _LASTS_S)

        ended = await together(one, count, _SHORT_S if short else _LASTS_S)
        return worst(ended) if ended else Answer(0, SILENT, 0.0)

    return drive


async def _grammars(target: Target) -> Answer:
    """Of one key, all different; another's ordinary schema begins all the same."""
    texts = [request_with({"guided_json": schema}, "/v1/chat/completions") for schema in SCHEMAS.values()]
    texts += [request_with({"guided_regex": text}, _ROUTE) for text in REGEXES.values()]
    texts += [request_with({"guided_grammar": text}, _ROUTE) for text in LARK.values()]
    left = iter((texts * 2)[:64])

    async def one() -> Answer:
        body = next(left)
        route = "/v1/chat/completions" if b'"messages"' in body else _ROUTE
        return await ask(target.port, [head_of(route, target.key, len(body)), body], _LASTS_S)

    ended = await together(one, 64, _LASTS_S)
    return worst(ended) if ended else Answer(0, SILENT, 0.0)


async def _refused(target: Target) -> Answer:
    """Requests whose work is only found to be for nothing at their end."""
    body = json.dumps({"model": MODEL, "prompt": "a b " * 900_000, "max_tokens": 1}).encode()
    answers = []
    for _ in range(20):
        answers.append(await ask(target.port, [head_of(_ROUTE, target.key, len(body)), body], ANSWER_WITHIN_S))
        await asyncio.sleep(0.02)
    return worst(answers)


def _reads(path: str) -> Callable[[Target], Awaitable[Answer]]:
    async def drive(target: Target) -> Answer:
        head = head_of(path, "", None, "GET", ["Connection: close"])

        async def again() -> Answer:
            answer = Answer(0, SILENT, 0.0)
            while True:
                answer = await ask(target.port, [head], _READ_LASTS_S)
                if answer.status == 0 or answer.status >= 500:
                    await asyncio.sleep(0.05)
                target.counted += 1

        await together(again, _READS_AT_ONCE, _READ_LASTS_S)
        answer = await ask(target.port, [head], ANSWER_WITHIN_S)
        return Answer(answer.status, answer.code, answer.answered_s, f"{target.counted / _READ_LASTS_S:.0f}/s")

    return drive
