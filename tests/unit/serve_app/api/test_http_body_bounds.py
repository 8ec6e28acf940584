"""What a body of the largest size costs, whatever fills whichever of its fields.

Fields are those of the bodies' models: a new one is covered by itself. Each is filled with as many bytes as a body may
have, and with as many objects, lists, keys and values as are let through to the parser.
"""

import asyncio
import json
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter
from starlette.types import Message as AsgiMessage

from serve_app.api.http.routes import make_api
from serve_app.api.messages.bodies import (
    MESSAGES_BODIES,
    AnsweringTurn,
    AskingTurn,
    MessagesBody,
    RedactedThinkingInput,
    TextInput,
    ThinkingInput,
    ThinkingInstruction,
    ToolInput,
    ToolResultInput,
    ToolSelection,
    ToolUseInput,
)
from serve_app.api.openai.bodies import ChatBody, ChatMessage, CompletionBody, OutriderOptions, StreamOptions, TextPart
from serve_app.api.openai.json_size import MAX_STRUCTURE, MAX_VALUES, JsonSize, check_json_size
from serve_app.api.openai.parsing import check_arguments
from serve_app.api.openai.tokenizing import DetokenizeBody, TokenizeChatBody, TokenizeTextBody
from serve_app.api.openai.unsupported import NOT_YET
from serve_app.api.responses.bodies import (
    InputItem,
    InputPart,
    ReasoningOptions,
    ResponsesBody,
    ResponseStreamOptions,
    TextOptions,
)
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, MESSAGE, RESPONSE, post
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS, TextService

BODY_BYTES = 4 * 2**20
# Promised: 2 s, 0.05 s and 50 MiB. Machines that run tests are busy, and count allocators' reserves.
ANSWERED_S, LOOP_S, MEMORY_MIB = 20.0, 0.25, 96
LARGE = replace(SETTINGS, max_body_bytes=BODY_BYTES)
FILLER = "@@filler@@"
_TEXT = [{"role": "user", "content": "Hello"}]
BODIES: Mapping[str, list[tuple[type[BaseModel], dict[str, Any]]]] = {
    "/v1/completions": [(CompletionBody, COMPLETION)],
    "/v1/chat/completions": [(ChatBody, CHAT)],
    "/v1/responses": [(ResponsesBody, RESPONSE)],
    "/v1/messages": [(MessagesBody, MESSAGE)],
    "/tokenize": [(TokenizeTextBody, {"prompt": "Hello"}), (TokenizeChatBody, {"messages": _TEXT})],
    "/detokenize": [(DetokenizeBody, {"tokens": [1]})],
}


MESSAGES_PARTS: Mapping[type[BaseModel], dict[str, Any]] = {
    AskingTurn: {"role": "user", "content": "Hello"},
    AnsweringTurn: {"role": "assistant", "content": "Hello"},
    TextInput: {"type": "text", "text": "a"},
    ThinkingInput: {"type": "thinking", "thinking": "a"},
    RedactedThinkingInput: {"type": "redacted_thinking", "data": "a"},
    ToolUseInput: {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ToolResultInput: {"type": "tool_result", "tool_use_id": "a"},
    ToolInput: {"name": "f", "input_schema": {}},
    ToolSelection: {"type": "auto"},
    ThinkingInstruction: {"type": "enabled"},
}


def listed(item: str, most: int) -> str:
    """A list of as many items as fit into a body."""
    return "[" + ",".join([item] * min(most, (BODY_BYTES - 200) // (len(item.encode()) + 1))) + "]"


def keyed(most: int) -> str:
    return "{" + ",".join(f'"{i}":1' for i in range(min(most, BODY_BYTES // 11))) + "}"


def fillers(most_structure: int, most_values: int) -> dict[str, str]:
    """JSON by what it is made of."""
    pairs, threes = most_structure // 2, most_structure // 3
    return {
        "lists": listed("[]", most_structure),
        "objects": listed("{}", most_structure),
        "lists of one": listed("[1]", most_structure),
        "lists of lists": listed("[[]]", pairs),
        "objects of one": listed('{"a":1}', pairs),
        "objects of lists": listed('{"a":[]}', threes),
        "ones": listed("1", most_values),
        "numbers": listed("-1.5e300", most_values),
        "long integers": listed("9" * 4000, most_values),
        "texts": listed('"ab"', most_values),
        "empty texts": listed('""', most_values),
        "escaped texts": listed(r'"\u00e9\"\\"', most_values),
        "nulls": listed("null", most_values),
        "mixed": listed('1,"a",null,true', most_values // 4),
        "list of a list": "[" + listed("1", most_values) + "]",
        "keys": keyed(most_structure),
        "parts": listed('{"type":"text","text":"a"}', threes),
        "messages": listed('{"role":"user","content":""}', threes),
        "functions": listed('{"type":"function","function":{"name":"f"}}', most_structure // 6),
    }


FILLED = {f"{name}, 4 MiB": text for name, text in fillers(BODY_BYTES, BODY_BYTES).items()}
FILLED |= {f"{name}, most parsed": text for name, text in fillers(MAX_STRUCTURE - 100, MAX_VALUES - 100).items()}
FILLED |= {
    "one text": json.dumps("a, b [c] {d}: " * (BODY_BYTES // 15)),
    "one text of quotes": json.dumps('\\"' * (BODY_BYTES // 5)),
    "one text of digits": json.dumps("1 " * (BODY_BYTES // 2 - 200)),
    "one text of JSON": json.dumps(listed("[]", BODY_BYTES)[: BODY_BYTES - 300]),
    "one key": '{"' + "k" * (BODY_BYTES - 300) + '": 1}',
    "one number": "9" * (BODY_BYTES - 300),
    "one fraction": "0." + "9" * (BODY_BYTES - 300),
    "one exponent": "1e" + "9" * (BODY_BYTES - 300),
    "deep lists": "[" * (BODY_BYTES // 2 - 200) + "]" * (BODY_BYTES // 2 - 200),
    "deep objects": '{"a":' * (BODY_BYTES // 7) + "1" + "}" * (BODY_BYTES // 7),
}


def paths(kind: type[BaseModel], around: Callable[[Any], dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each field of a model, its name and a body with a filler in it; those of models inside it likewise."""
    for name, info in kind.model_fields.items():
        yield name, around({name: FILLER})
        for inner, is_list in models_in(info.annotation):
            others = {"role": "user", "content": "Hello"} if inner is ChatMessage else {}
            others |= {"type": "text", "text": "a"} if inner is TextPart else {}
            others |= {"role": "user", "content": "Hello"} if inner is InputItem else {}
            others |= {"type": "input_text", "text": "a"} if inner is InputPart else {}
            others |= MESSAGES_PARTS.get(inner, {})

            def within(value: Any, name: str = name, is_list: bool = is_list, others: Any = others) -> dict[str, Any]:
                item = others | value
                return around({name: [item] if is_list else item})

            for deeper, body in paths(inner, within):
                yield f"{name}.{deeper}", body


def models_in(annotation: Any, *, is_list: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, is_list
    for inner in get_args(annotation):
        yield from models_in(inner, is_list=is_list or get_origin(annotation) is list)


def by_hand() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Fields that no model has: of objects that are described freely, and those that are refused."""
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": FILLER}}
    calling = [{"role": "assistant", "tool_calls": [called]}]
    for path in ("/v1/chat/completions", "/tokenize"):
        yield path, "messages.tool_calls.function.arguments", {**CHAT, "messages": calling} | {"max_tokens": None}
    described = {"type": "function", "function": {"name": "f", "parameters": FILLER}}
    yield "/v1/chat/completions", "tools.function.parameters", {**CHAT, "tools": [described]}
    for kind in ("function_call", "function_call_output", "reasoning"):
        for name in ("arguments", "output", "summary", "content", "name"):
            item = {"type": kind, "call_id": "c", "name": "f", "arguments": "{}", "output": "a", name: FILLER}
            yield "/v1/responses", f"input.{kind}.{name}", {**RESPONSE, "input": [item]}
    flat = {"type": "function", "name": "f", "parameters": FILLER}
    yield "/v1/responses", "tools.parameters", {**RESPONSE, "tools": [flat]}
    yield "/v1/responses", "text.format", {**RESPONSE, "text": {"format": {"type": "json_schema", "schema": FILLER}}}
    yield "/v1/responses", "tool_choice.tools", {**RESPONSE, "tool_choice": {"type": "allowed_tools", "tools": FILLER}}
    yield "/v1/messages/count_tokens", "messages", {**MESSAGE, "messages": FILLER}
    using = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"a": FILLER}}]}
    yield "/v1/messages", "messages.content.input", {**MESSAGE, "messages": [using, *_TEXT]}
    schema = {"type": "json_schema", "schema": FILLER}
    yield "/v1/messages", "output_config.format.schema", {**MESSAGE, "output_config": {"format": schema}}
    named = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": FILLER}}}
    yield "/v1/chat/completions", "response_format.json_schema.schema", {**CHAT, "response_format": named}
    for kind in ("json", "regex", "choice", "grammar", "unknown"):
        yield "/v1/completions", f"structured_outputs.{kind}", {**COMPLETION, "structured_outputs": {kind: FILLER}}
    for name in ("unknown", *(name for name, one in NOT_YET.items() if {list, dict} & set(map(type, one.neutral)))):
        yield "/v1/completions", name, {**COMPLETION, name: FILLER}


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, kinds in BODIES.items():
        for kind, valid in kinds:
            for name, body in paths(kind, partial(operator.or_, valid)):
                streams = {"stream": True} if name.startswith("stream_options") else {}
                yield path, name, streams | body
    yield from by_hand()


CASES = list(cases())


@dataclass
class Cost:
    status: int = 0
    answer: bytes = b""
    answered_s: float = 0.0
    loop_s: float = 0.0  # of the loop's thread
    memory_mib: float = 0.0  # at the most, more than before


async def cost_of(api: Any, path: str, content: bytes) -> Cost:
    """Ask as an ASGI server does, without one."""
    cost, ended = Cost(), asyncio.Event()
    asked = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> AsgiMessage:
        if (message := next(asked, None)) is not None:
            return message
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: AsgiMessage) -> None:
        cost.status = message.get("status", cost.status)
        cost.answer += message.get("body", b"")

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
    }
    before_mib, began_s, loop_began_s = forget_peak_mib(), time.monotonic(), time.thread_time()
    await api(scope, receive, send)
    cost.loop_s, cost.answered_s = time.thread_time() - loop_began_s, time.monotonic() - began_s
    cost.memory_mib = status_mib("VmHWM") - before_mib
    return cost


def forget_peak_mib() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return status_mib("VmRSS")


def status_mib(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


@pytest.mark.parametrize("filler", FILLED)
def test_a_body_costs_little_whatever_fills_it(filler: str) -> None:
    """Each filler in each eighteenth field, so that in the end each field has some; ``make long`` takes all."""
    number = list(FILLED).index(filler)
    check(filler, CASES[number % 18 :: 18])


@pytest.mark.long
@pytest.mark.parametrize("filler", FILLED)
def test_a_body_costs_little_whatever_fills_any_of_its_fields(filler: str) -> None:
    check(filler, CASES)


def check(filler: str, fields: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    limits = replace(LIMITS, max_context_tokens=8192, max_output_tokens=4096, max_prompt_chars=8192 * 128)

    async def ask_all() -> dict[str, Cost]:
        api = make_api(TextService(limits=limits, settings=LARGE))
        usual = await cost_of(api, "/v1/completions", json.dumps(COMPLETION).encode())  # threads, caches
        assert usual.status == 200
        costs = {}
        for path, name, body in fields:
            content = json.dumps(body).replace(f'"{FILLER}"', FILLED[filler]).encode()
            costs[f"{path} {name}"] = await cost_of(api, path, content)
        return costs

    costs = asyncio.run(ask_all())
    for what in ("answered_s", "loop_s", "memory_mib"):
        worst = max(costs, key=lambda where: getattr(costs[where], what))
        print(f"{filler}: {what} {getattr(costs[worst], what):.3f} {worst} {costs[worst].status}")  # noqa: T201
    for where, cost in costs.items():
        assert cost.status in {200, 400, 404, 413}, (where, cost)
        assert cost.status == 200 or len(cost.answer) < 1500, where
        assert cost.answered_s < ANSWERED_S, where
        assert cost.loop_s < LOOP_S, where
        assert cost.memory_mib < MEMORY_MIB, where


def test_a_long_text_of_json_is_no_json() -> None:
    """Marks within strings are not counted: a prompt may be source code."""
    text = '{"a": [1, 2, "b\\\\"], "c": {}}, ' * 90_000
    for path, body in (("/tokenize", {"prompt": text}), ("/v1/completions", {**COMPLETION, "prompt": text})):
        cost = asyncio.run(cost_of(make_api(TextService(settings=LARGE)), path, json.dumps(body).encode()))
        assert cost.status == 400
        assert b"needs at most" in cost.answer or b"a text of at most" in cost.answer


def test_two_prompts_of_token_ids_that_fill_a_long_context_are_read() -> None:
    limits = replace(LIMITS, max_context_tokens=131_072)
    body = COMPLETION | {"prompt": [[5] * 131_000, [7] * 131_000]}
    cost = asyncio.run(
        cost_of(make_api(TextService(settings=LARGE, limits=limits)), "/v1/completions", json.dumps(body).encode())
    )
    assert cost.status == 200


@pytest.mark.parametrize(
    "text", ['[1, "a,[{:", {"b": [], "c\\"": ","}]', '["\\\\", ",", "\\\\\\",", 1]', '[{}, [[]], "", "]"]']
)
@pytest.mark.parametrize("spaces", [0, 3, 70_001, 2**18 - 1])
def test_what_is_counted_is_what_a_parser_makes(text: str, spaces: int) -> None:
    """Wherever chunks are cut, once a text has so many marks that strings are told apart."""
    padded = f'["{"," * 400_000}",{" " * spaces}{text}]'
    size = check_json_size([padded.encode()], MAX_VALUES)
    made = json.loads(padded)
    assert size == JsonSize(*counted(made))


@pytest.mark.parametrize("arguments", [{"path": "a" * 190}, {"path": "a.py", "content": "f(a, [b, {c: d}])\n" * 40}])
def test_a_long_chat_of_an_agent_is_read(arguments: dict[str, str]) -> None:
    """Hundreds of calls: what stands within strings of their arguments is not counted."""
    called = {"id": "c", "type": "function", "function": {"name": "write", "arguments": json.dumps(arguments)}}
    turn = [
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "content": "done", "tool_call_id": "c"},
    ]
    message: Any = TypeAdapter(list[ChatMessage])
    limits = replace(LIMITS, max_prompt_chars=8192 * 128)
    check_arguments(message.validate_python([{"role": "user", "content": "go"}, *turn * 500]), limits)


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_arguments_are_as_long_as_a_prompt_at_most(path: str, as_text: bool) -> None:
    """Objects are measured like texts; a body no longer than a prompt cannot have longer ones."""

    def asked(chars: int, most: int) -> tuple[int, str]:
        arguments: Any = {"content": "a" * (chars - len('{"content":""}'))}
        if as_text:
            arguments = json.dumps(arguments, separators=(",", ":"))
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        body = {**CHAT, "messages": [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}]}
        limits = replace(LIMITS, max_prompt_chars=most, max_context_tokens=8192)
        answer = post(TextService(settings=LARGE, limits=limits), path, body)
        return answer.status_code, answer.text

    assert "arguments of tool calls" not in asked(30_000, 30_000)[1]
    status, told = asked(30_001, 30_000)
    assert status == 400
    assert "arguments of tool calls of at most 30000 characters together, found 30001" in told


def counted(value: Any) -> tuple[int, int]:
    """Structure and values: of each list or object one value more than it has, as an empty one is not told apart."""
    if isinstance(value, list | dict):
        inner = [counted(item) for item in (value.values() if isinstance(value, dict) else value)]
        structure = 1 + sum(one for one, _ in inner) + (len(value) if isinstance(value, dict) else 0)
        return structure, max(1, len(value)) + sum(other for _, other in inner)
    return 0, 0


def collections_of(kind: type[BaseModel]) -> Iterator[tuple[str, Any, Sequence[Any]]]:
    """Each list and object in a model's fields, at any depth, with what is known of it."""

    def within(annotation: Any, known: Sequence[Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
        if get_origin(annotation) is Annotated:
            base, *infos = get_args(annotation)
            yield from within(base, [each for info in infos for each in info.metadata])
            return
        if get_origin(annotation) in (list, dict) or annotation in (list, dict):
            yield annotation, known
        for inner in get_args(annotation):
            yield from within(inner, ())

    for name, info in kind.model_fields.items():
        for annotation, known in within(info.annotation, info.metadata):
            yield name, annotation, known


MODELS: set[type[BaseModel]] = {kind for kinds in BODIES.values() for kind, _ in kinds} | {
    ChatMessage,
    TextPart,
    OutriderOptions,
    StreamOptions,
    InputItem,
    InputPart,
    TextOptions,
    ReasoningOptions,
    ResponseStreamOptions,
    *MESSAGES_BODIES,
}


BY_NAME = sorted(MODELS, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", BY_NAME)
def test_every_list_and_object_has_a_largest_length_and_fails_fast(kind: type[BaseModel]) -> None:
    assert {inner for info in kind.model_fields.values() for inner, _ in models_in(info.annotation)} <= MODELS
    for name, annotation, known in collections_of(kind):
        assert any(getattr(each, "max_length", None) for each in known), (name, annotation)
        assert any(getattr(each, "fail_fast", False) for each in known), (name, annotation)
