"""Fields that agents' clients and gateways send, filled with what is hostile.

Unknown ones, misspelled ones, the template's variables, tool calls, and what is taken without effect. Each answer has
to have one of the statuses that are ``Wanted``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.hostile.cases import BODY_BYTES, MODEL, Case, Target, worst
from tests.hostile.planted.sitecustomize import LOOPS
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

CHAT, COMPLETION, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/v1/tokenize"
ROUTES = (CHAT, "/tokenize", TOKENIZE)  # that take chats
_MOST_NAMED, _MOST_NAME_CHARS = 16, 64
_USER = {"role": "user", "content": "a"}
_CONTROL = "".join(map(chr, range(32))) + "\x7f\u0085\u2028\ufeff"
_NEST = 150  # a parser takes 200

# Every name that a body or the template's call has of its own: none of them may be replaced.
_SET_HERE = (
    *("messages", "tools", "documents", "conversation", "conversations", "chat_template", "add_generation_prompt"),
    *("continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
    *("return_assistant_tokens_mask", "tokenizer_kwargs", "bos_token", "eos_token", "pad_token", "unk_token"),
    *("raise_exception", "strftime_now", "self", "loop", "range", "dict", "lipsum", "cycler", "joiner", "namespace"),
    *("caller", "varargs", "kwargs", "__class__", "_x", "a.b", "a b", "", "1", "\x00", "messages\x00", "a-b"),
)
_WORDS = ("if", "None", "class", "not", "environment", "context", "eval_ctx", "blocks", "exported_vars", "name", "root")
_LONG_TEXTS = ("prompt_cache_key", "safety_identifier", "user", "request_id", "cache_salt")
_TIERS: tuple[object, ...] = ("auto", "flex", "priority", "scale", "a" * 10**6, 1, [])
_ARGUMENTS: tuple[object, ...] = (None, 1, "", "{", "[1]", [], [[]], 1e308, "\ud800", {"": None})
_EFFORTS: tuple[object, ...] = ("none", "max", "a" * 10**6, ["low"], {"a": 1}, 10**30, True)
_STOP_IDS: tuple[object, ...] = (
    [5] * 128,
    [1] * 390_000,
    [-1],
    [2**63],
    [10**4000],
    [1.0],
    [True],
    [[1]],
    {"1": 1},
    "1",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bodies to be sent one after the other, and which statuses their answers may have."""

    bodies: Callable[[], Iterator[dict[str, Any]]]
    statuses: frozenset[int]
    routes: tuple[str, ...] = (CHAT,)
    short: bool = False


def _one(statuses: set[int], *, routes: tuple[str, ...] = (CHAT,), short: bool = False) -> Callable[..., Wanted]:
    return lambda fields: Wanted(lambda: iter([fields()]), frozenset(statuses), routes, short)


def _each(statuses: set[int], *, routes: tuple[str, ...] = (CHAT,), short: bool = False) -> Callable[..., Wanted]:
    return lambda fields: Wanted(lambda: iter(fields()), frozenset(statuses), routes, short)


def _nested(depth: int, inner: object = 1) -> object:
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def _called(arguments: object, count: int = 1) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [_USER, {"role": "assistant", "tool_calls": [call] * count}]}


def _kwargs(**variables: object) -> dict[str, Any]:
    return {"chat_template_kwargs": variables}


def _misspelled() -> Iterator[dict[str, Any]]:
    known = "temperature max_completion_tokens chat_template_kwargs presence_penalty prompt_cache_key stop_token_ids"
    for name in known.split():
        for wrong in (name[1:], name[:-1], name.upper() + "S", name[:4] + "x" + name[4:]):
            yield {wrong: 1}


_TEXTS = {
    "1,024 control characters": (_CONTROL * 40)[:1000],
    "a head's end": "a\r\n\r\nHTTP/1.1 200 OK\r\nX-Evil: 1\r\n\r\n",
    "lone surrogates": "\ud800" * 100,
    "4 MiB": "a" * (BODY_BYTES - 400),
}

CASES: Mapping[str, Wanted] = {
    # Fields that nobody knows.
    "20,000 fields that nobody knows": _one({400})(lambda: {f"nobody{i}": 1 for i in range(20_000)}),
    "60 names of 64 KiB": _one({200, 400}, routes=ROUTES)(lambda: {f"{i}" + "n" * 65_000: 1 for i in range(60)}),
    "a name of 4 MiB": _one({200, 400}, routes=ROUTES)(lambda: {"n" * (BODY_BYTES - 400): 1}),
    "60 names that differ behind 64 characters": _one({200, 400})(lambda: {"n" * 64 + str(i): 1 for i in range(60)}),
    "names of control characters": _one({200}, routes=ROUTES, short=True)(
        lambda: {char + "\r\nX-Evil: 1\r\n": 1 for char in _CONTROL}
    ),
    "names of lone surrogates": _one({200, 400})(lambda: {"\ud800" * i: 1 for i in range(1, 40)}),
    "names of brackets and dots": _one({200, 400})(lambda: {"[0]" * 20_000: 1, "." * 60_000: 1, "[" * 60_000: 1}),
    "60 that resemble known ones a little": _one({200, 400})(
        lambda: {f"max_{i}_tokenz_{'x' * 40}": 1 for i in range(60)}
    ),
    "one that nobody knows in 2,000 messages": _one({400})(
        lambda: {"messages": [{**_USER, f"nobody{i}": 1} for i in range(2000)]}
    ),
    "one that nobody knows in 900 parts of 20 messages": _one({413})(
        lambda: {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "", "tone": 1}] * 900} for _ in range(20)
            ]
        }
    ),
    "values of 1 MiB under three unknown names": _one({200})(lambda: {f"nobody{i}": "a" * 2**20 for i in range(3)}),
    "an unknown object, 150 deep": _one({200, 400}, routes=ROUTES)(lambda: {"nobody": _nested(_NEST)}),
    "24 misspelled fields, one by one": _each({400}, short=True)(_misspelled),
    "60 misspelled fields at once": _one({400})(lambda: {f"temperatur{chr(0x100 + i)}": 1 for i in range(60)}),
    # Variables of the template.
    "variables of a template that loops": _each({400}, routes=ROUTES, short=True)(
        lambda: [_kwargs(**{LOOPS: 90_000}), _kwargs(**{LOOPS: 1_000_000}), _kwargs(**{LOOPS: 1e6})]
    ),
    "variables of a template that loops a little": _one({200}, routes=ROUTES)(lambda: _kwargs(**{LOOPS: 10})),
    "numbers that overflow": _each({400}, routes=ROUTES)(
        lambda: [_kwargs(n=value) for value in (10**9, 2**63, 10**4000, 1e308, -(2**63))]
    ),
    "4 MiB of a variable": _one({400}, routes=ROUTES)(lambda: _kwargs(text="a" * (BODY_BYTES - 400))),
    "1,000 variables": _one({400})(lambda: _kwargs(**{f"v{i}": 1 for i in range(1000)})),
    "400,000 values of a variable": _one({400, 413}, routes=ROUTES)(lambda: _kwargs(items=[1] * 390_000)),
    "45,000 keys of a variable": _one({400, 413}, routes=ROUTES)(lambda: _kwargs(o={str(i): 1 for i in range(45_000)})),
    "a variable 150 deep": _one({400}, routes=ROUTES)(lambda: _kwargs(o=_nested(_NEST))),
    "a variable's name of 4 MiB": _one({400})(lambda: _kwargs(**{"n" * (BODY_BYTES - 400): 1})),
    "names that are set here": _each({400}, routes=ROUTES)(lambda: [_kwargs(**{name: []}) for name in _SET_HERE]),
    "names of Python's and jinja's": _each({200, 400}, routes=ROUTES)(
        lambda: [_kwargs(**{name: [1]}) for name in _WORDS]
    ),
    "reasoning_effort of every kind": _each({200, 400}, routes=ROUTES)(
        lambda: [{"reasoning_effort": value} for value in _EFFORTS]
    ),
    "reasoning of a megabyte in each turn": _one({200, 400}, routes=ROUTES)(
        lambda: {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "hm " * 300_000}] * 4}
    ),
    # Taken, and obeyed or without effect.
    "service_tier of every kind": _each({200, 400})(lambda: [{"service_tier": value} for value in _TIERS]),
    "priority at its extremes": _each({200, 400})(
        lambda: [
            {"priority": n} for n in (2**31 - 1, 1 - 2**31, 2**31, -(2**31), 2**63, 10**400, 1e308, -0.0, "1", True)
        ]
    ),
    **{
        f"{field}: {name}": _one({200, 400}, short=field == "request_id")(lambda f=field, t=text: {f: t})
        for field in _LONG_TEXTS
        for name, text in _TEXTS.items()
    },
    "128 stop ids": _one({200})(lambda: {"stop_token_ids": list(range(128)), "n": 16}),
    "stop ids of every kind": _each({200, 400, 413})(lambda: [{"stop_token_ids": value} for value in _STOP_IDS]),
    "metadata of 20,000": _one({400})(lambda: {"metadata": {str(i): "a" for i in range(20_000)}}),
    "metadata of surrogates and control characters": _one({200, 400})(
        lambda: {"metadata": {f"{i}{_CONTROL}"[:64]: "\ud800" + _CONTROL * 14 for i in range(16)}}
    ),
    "metadata, 150 deep": _one({400})(lambda: {"metadata": {"a": _nested(_NEST)}}),
    "cache_control in 900 parts": _one({200, 400})(
        lambda: {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}] * 900,
                }
            ]
        }
    ),
    "cache_control, 150 deep, and of 45,000 keys": _each({200, 400, 413}, routes=ROUTES)(
        lambda: [
            {"messages": [{**_USER, "cache_control": _nested(_NEST)}]},
            {"messages": [{**_USER, "cache_control": {str(i): 1 for i in range(45_000)}}]},
        ]
    ),
    "return_token_ids": _one({200})(lambda: {"return_token_ids": True, "n": 2, "max_tokens": 8}),
    # Arguments of tool calls, as objects.
    "arguments: a text of 4 MiB": _one({400}, routes=ROUTES, short=True)(
        lambda: _called({"a": "b" * (BODY_BYTES - 600)})
    ),
    "arguments: 45,000 keys": _one({200, 400, 413}, routes=ROUTES)(lambda: _called({str(i): 1 for i in range(45_000)})),
    "arguments: 390,000 numbers": _one({400, 413}, routes=ROUTES)(lambda: _called({"a": [1] * 390_000})),
    "arguments: 390,000 texts": _one({400, 413}, routes=ROUTES)(lambda: _called({"a": ["b"] * 390_000})),
    "arguments: 150 deep": _one({200, 400}, routes=ROUTES)(lambda: _called(_nested(_NEST))),
    "arguments: 128 calls of 30,000 characters": _one({400}, routes=ROUTES)(lambda: _called({"a": "b" * 30_000}, 128)),
    "arguments: a text of JSON, 4 MiB": _one({400}, routes=ROUTES)(
        lambda: _called(json.dumps({"a": "b" * (BODY_BYTES - 600)}))
    ),
    "arguments: a text of JSON, 150 deep, cut": _one({200, 400}, routes=ROUTES)(
        lambda: _called(json.dumps(_nested(_NEST))[:-60])
    ),
    "arguments: of every kind": _each({200, 400}, routes=ROUTES)(lambda: [_called(value) for value in _ARGUMENTS]),
    "128 tools of 30,000 characters": _one({400})(
        lambda: {
            "tools": [
                {"type": "function", "function": {"name": f"f{i}", "description": "d" * 30_000}} for i in range(128)
            ]
        }
    ),
}


def cases() -> Iterator[Case]:
    """Each of one field, on each route that takes it."""
    for name, wanted in CASES.items():
        for route in wanted.routes:
            short = wanted.short and route == CHAT
            yield Case(Family.FIELDS, f"{route}: {name}", _asked(route, wanted), short)


def _asked(route: str, wanted: Wanted) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        answers = []
        for fields in wanted.bodies():
            known = {"model": MODEL, "messages": [_USER]} | ({"max_tokens": 1} if route == CHAT else {})
            body = json.dumps(known | fields).encode()
            answer = await target.post(route, (body,), len(body))
            answers.append(answer)
            if answer.status not in wanted.statuses:
                told = f"{answer.status or answer.code} {answer.detail}"
                target.wrong.append(
                    f"{body[len(json.dumps(known)) - 1 :][:60]!r}: {told}, not of {sorted(wanted.statuses)}"
                )
            target.wrong += wrong_heads(answer.head)
        return worst(answers)

    return drive


def wrong_heads(head: str) -> list[str]:
    """What may not be in an answer's head: a line that a request wrote, or more names than may be told."""
    wrong = ["a request wrote a line of the head"] if "\nx-evil" in head.lower() else []
    told = next((line for line in head.lower().split("\r\n") if line.startswith("x-outrider-ignored:")), "")
    names = [name.strip() for name in told.partition(":")[2].split(",") if name.strip()]
    if len(names) > _MOST_NAMED or any(len(name) > _MOST_NAME_CHARS for name in names):
        wrong.append(f"{len(names)} names of ignored fields, of up to {max(map(len, names))} characters")
    return wrong
