"""Anthropic's Messages API: what a request asks of the model, and what its answer says, whole and streamed."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic_core import from_json

from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, Connection, ask, post, within
from tests.unit.serve_app.api.asking import MESSAGE as BODY
from tests.unit.serve_app.api.test_http_keys import ALICE, CountingGate
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TextService

PATH = "/v1/messages"
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "name": "weather",
    "description": "of a city",
    "input_schema": SCHEMA,
    "cache_control": {"type": "ephemeral"},
}
CHATS_WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
TOOLS = replace(LIMITS, tool_format="hermes")


def asked(body: dict[str, Any], service: TextService | None = None, **headers: str) -> httpx.Response:
    return post(service or TextService(), PATH, BODY | body, **headers)


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    events = []
    for event in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def accumulated(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The message of a stream, as Anthropic's clients put it together."""
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    message, inputs, is_open = dict(events[0]["message"]), dict[int, str](), False
    for event in events[2:-1]:
        match event["type"]:
            case "content_block_start":
                assert (event["index"], is_open) == (len(message["content"]), False)
                message["content"].append(event["content_block"])
                is_open = True
            case "content_block_delta":
                assert (event["index"], is_open) == (len(message["content"]) - 1, True)
                block, delta = message["content"][-1], event["delta"]
                match delta["type"]:
                    case "input_json_delta":
                        inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                        block["input"] = from_json(inputs[event["index"]], allow_partial=True)
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case kind:
                        block[kind.removesuffix("_delta")] += delta[kind.removesuffix("_delta")]
            case "content_block_stop":
                assert is_open
                is_open = False
            case "message_delta":
                assert not is_open
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return message


def text_of(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def both(body: dict[str, Any], **service: Any) -> dict[str, Any]:
    """The answer to a request, which is the same streamed."""
    whole = asked(body, TextService(**service))
    assert whole.status_code == 200, whole.text
    streamed = asked(body | {"stream": True}, TextService(**service))
    found, joined = whole.json(), accumulated(events_of(streamed))
    for message in (found, joined):
        assert message.pop("id").startswith("msg_")
        for block in message["content"]:
            if block["type"] == "tool_use":
                assert block.pop("id").startswith("toolu_")
    assert joined == found
    return dict(found)


def test_the_text_is_the_chats() -> None:
    message = both({})
    chat = post(TextService(), "/v1/chat/completions", CHAT).json()
    assert text_of(message) == chat["choices"][0]["message"]["content"] == ALL_TEXT
    assert (message["stop_reason"], message["stop_sequence"], message["model"]) == ("max_tokens", None, MODEL)
    assert (message["type"], message["role"]) == ("message", "assistant")
    usage, of_chat = message["usage"], chat["usage"]
    cached = usage["cache_read_input_tokens"]
    assert cached == of_chat["prompt_tokens_details"]["cached_tokens"] > 0
    assert (usage["input_tokens"] + cached, usage["output_tokens"]) == (of_chat["prompt_tokens"], 40)
    assert usage["outrider"] == of_chat["outrider"]


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({"system": "Be brief."}, {"messages": [{"role": "system", "content": "Be brief."}, *CHAT["messages"]]}),
        (
            {
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=00000;"},
                    {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    {"type": "text", "text": "brief."},
                ]
            },
            {"messages": [{"role": "system", "content": "Be\nbrief."}, *CHAT["messages"]]},
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "hm", "signature": "abc"},
                            {"type": "redacted_thinking", "data": "AAAA"},
                            {"type": "text", "text": "I look."},
                            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny", "is_error": False},
                            {
                                "type": "tool_result",
                                "tool_use_id": "toolu_2",
                                "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
                                "is_error": True,
                            },
                            {"type": "text", "text": "and?"},
                        ],
                    },
                ],
                "tools": [WEATHER],
            },
            {
                "messages": [
                    {"role": "user", "content": "a\nb"},
                    {
                        "role": "assistant",
                        "content": "I look.",
                        "reasoning_content": "hm",
                        "tool_calls": [
                            {
                                "id": "toolu_1",
                                "type": "function",
                                "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
                            }
                        ],
                    },
                    {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
                    {"role": "tool", "tool_call_id": "toolu_2", "content": "x\ny"},
                    {"role": "user", "content": "and?"},
                ],
                "tools": [CHATS_WEATHER],
            },
        ),
        ({"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, {}),
        ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"stop_sequences": ["fox", "dog"]}, {"stop": ["fox", "dog"]}),
        ({"stop_sequences": []}, {}),
        ({"metadata": {"user_id": '{"device_id": "a"}'}}, {"user": '{"device_id": "a"}'}),
        ({"temperature": 0.5, "top_p": 0.5, "top_k": 7}, {"temperature": 0.5, "top_p": 0.5, "top_k": 7}),
        ({"seed": 3, "min_p": 0.1, "logit_bias": {"5": 1}}, {"seed": 3, "min_p": 0.1, "logit_bias": {"5": 1}}),
        ({"priority": 4, "stop_token_ids": [9]}, {"priority": 4, "stop_token_ids": [9]}),
        ({"outrider": {"window": 2, "lookup": 3}}, {"outrider": {"window": 2, "lookup": 3}}),
        ({"service_tier": "standard_only"}, {"service_tier": "default"}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "none"}}, {}),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {
                "tools": [CHATS_WEATHER],
                "tool_choice": "required",
                "parallel_tool_calls": False,
            },
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}},
            {
                "tools": [CHATS_WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "weather"}},
            },
        ),
    ],
)  # fmt: skip
def test_a_request_is_that_of_a_chat(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    limits = replace(TOOLS, max_context_tokens=2000)
    ours, chats = TextService(limits=limits), TextService(limits=limits)
    answer, of_chat = asked({"seed": 1} | fields, ours), post(chats, "/v1/chat/completions", CHAT | {"seed": 1} | chat)
    assert (answer.status_code, of_chat.status_code) == (200, 200), answer.text + of_chat.text
    ((made,), (by_chat,)) = ours.requests, chats.requests
    assert replace(made, generation="", request_id="") == replace(by_chat, generation="", request_id="")


def test_what_has_no_effect_is_told() -> None:
    fields = {
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "cache_control": {"type": "ephemeral"},
        "diagnostics": {"previous_message_id": None},
    }
    answer = post(
        TextService(), f"{PATH}?beta=true", BODY | fields, **{"anthropic-beta": "a,b", "anthropic-version": "c"}
    )
    assert answer.status_code == 200
    told = set(answer.headers["x-outrider-ignored"].split(", "))
    without = {"thinking.budget_tokens", "system.x-anthropic-billing-header", "context_management", "diagnostics"}
    assert told == without


def test_only_the_line_of_a_system_text_that_differs_each_time_is_left_out() -> None:
    said = post(TextService(), f"{PATH}/count_tokens", BODY | {"system": "You are a pirate."})
    both_lines = BODY | {"system": "x-anthropic-billing-header: v=1;\nYou are a pirate."}
    counted = post(TextService(), f"{PATH}/count_tokens", {k: v for k, v in both_lines.items() if k != "max_tokens"})
    assert counted.status_code == 200, counted.text
    assert counted.json() == said.json()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_cancels_its_answer(*, stream: bool) -> None:
    async def hang_up() -> None:
        service = TextService(trouble_at=6)
        connection = Connection(PATH, BODY | {"stream": stream})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        connection.hung_up.set()
        await serving
        assert service.cancelled == 1

    within(hang_up())


@pytest.mark.parametrize(
    "fields",
    [{}, {"system": "Be brief."}, {"tools": [WEATHER]}, {"tools": [WEATHER], "tool_choice": {"type": "none"}}],
)
def test_a_prompts_tokens_are_counted(fields: dict[str, Any]) -> None:
    limits = replace(TOOLS, max_context_tokens=1000)
    counted = post(
        TextService(limits=limits),
        f"{PATH}/count_tokens",
        {name: value for name, value in (BODY | fields).items() if name != "max_tokens"},
    )
    usage = asked(fields, TextService(limits=limits)).json()["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_counting_takes_prompts_beyond_the_context_and_refuses_by_name() -> None:
    def counted(body: dict[str, Any], **headers: str) -> httpx.Response:
        gate = CountingGate()
        return post(TextService(gate=gate), f"{PATH}/count_tokens", body, **{"x-api-key": ALICE, **headers})

    body = {name: value for name, value in BODY.items() if name != "max_tokens"}
    assert counted(body | {"messages": [{"role": "user", "content": "word " * 2000}]}).json()["input_tokens"] > 2000
    answer = counted(BODY | {"temperature": 1.0})
    assert (answer.status_code, answer.headers["x-outrider-ignored"]) == (200, "max_tokens, temperature")
    refused = counted(body | {"messages": [{"role": "user", "content": [{"type": "image"}]}]})
    assert (refused.status_code, refused.json()["type"]) == (400, "error")
    assert counted(body, **{"x-api-key": "sk-nobody-0123456789"}).status_code == 401


def test_models_are_listed_in_anthropics_form_for_its_clients() -> None:
    headers = {"anthropic-version": "2023-06-01"}
    found = ask(TextService(), "GET", "/v1/models?limit=1000", headers=headers).json()
    assert (found["first_id"], found["last_id"], found["has_more"]) == (MODEL, MODEL, False)
    one = ask(TextService(), "GET", f"/v1/models/{MODEL}", headers=headers).json()
    assert [one | {"created_at": card["created_at"]} for card in found["data"]] == found["data"]
    assert (one["type"], one["display_name"], one["created_at"][-1]) == ("model", MODEL, "Z")
    assert ask(TextService(), "GET", "/v1/models").json()["object"] == "list"


def test_names_of_tools_are_as_long_as_anthropics() -> None:
    tool = {"name": "a" * 128, "input_schema": {"type": "object"}}
    answer = asked({"tools": [tool], "tool_choice": {"type": "tool", "name": "a" * 128}}, TextService(limits=TOOLS))
    assert answer.status_code == 200, answer.text
