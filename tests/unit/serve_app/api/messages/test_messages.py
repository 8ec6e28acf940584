"""Anthropic's Messages API: what a request asks of the model, and what its answer says, whole and streamed."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic_core import from_json

from outrider.contracts.errors import GenerationFailedError
from outrider.contracts.requests import FinishReason
from outrider.tenants.quotas import OverQuota
from serve_app.api.api_forms import AnswerFacts
from serve_app.api.http.routes import make_api
from serve_app.api.messages.writing import MessageWriter
from serve_app.api.openai.writing.answer_parts import AnswerPart
from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, Connection, ask, post, within
from tests.unit.serve_app.api.asking import MESSAGE as BODY
from tests.unit.serve_app.api.test_http_keys import ALICE, CountingGate
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, SETTINGS, TextService

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


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ('{"a": NaN, "b": [1e999, 1.5], "c": {"d": -Infinity}}', {"a": None, "b": [None, 1.5], "c": {"d": None}}),
        ('{"a": "x", "b": "y', {"a": "x"}),
        ("", {}),
        ("[1]", {}),
    ],
)  # fmt: skip
def test_arguments_are_json_whatever_the_model_writes(arguments: str, found: dict[str, Any]) -> None:
    call = AnswerPart("tool_calls", [arguments], call_id="call_1", name="weather")
    usage: Any = usage_of()
    answer: Any = MessageWriter(AnswerFacts("msg_1", MODEL, 0, 5)).document([call], FinishReason.STOP, usage, {})
    assert answer["content"][0]["input"] == found
    json.loads(json.dumps(answer), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("stop", "reason", "sequence", "said"),
    [
        (["jumps"], "stop_sequence", "jumps", "The quick 🦊 "),
        (["zzz", " over 漢", "漢"], "stop_sequence", " over 漢", "The quick 🦊 jumps"),
        (["quick 🦊"], "stop_sequence", "quick 🦊", "The "),
        (["zzz"], "max_tokens", None, ALL_TEXT),
    ],
)
def test_a_stop_sequence_is_told(stop: list[str], reason: str, sequence: str | None, said: str) -> None:
    message = both({"stop_sequences": stop})
    assert (message["stop_reason"], message["stop_sequence"], text_of(message)) == (reason, sequence, said)


@pytest.mark.parametrize("choice", [None, {"type": "auto"}, {"type": "tool", "name": "weather"}])
def test_calls_are_blocks(choice: dict[str, str] | None) -> None:
    """Also of a named tool, which is no ``tool_calls`` of chats."""
    fields = {"tools": [WEATHER], "tool_choice": choice, "stop_sequences": [" END"]}
    message = both(fields | {"stop_sequences": []}, texts=(f"I look.\n{CALL} ",), limits=TOOLS)
    assert [block["type"] for block in message["content"]][:2] == ["text", "tool_use"]
    assert message["content"][1] == {"type": "tool_use", "name": "weather", "input": {"city": "Rome"}}
    assert both(fields, texts=(f"{CALL} END",), limits=TOOLS)["stop_sequence"] == " END"


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length"])
def test_a_call_of_any_kind_is_a_reason_to_stop(reason: str) -> None:
    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    piece = {"index": 0, "function": {"arguments": '{"city": "Ro'}}
    message = accumulated(written({"tool_calls": [begun]}, {"tool_calls": [piece]}, reason=reason))
    assert message["content"] == [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}]
    assert message["stop_reason"] == ("max_tokens" if reason == "length" else "tool_use")


def written(*deltas: dict[str, Any], reason: str = "stop", shows: bool = True) -> list[dict[str, Any]]:
    """Events of a chat's chunks."""
    writer = MessageWriter(AnswerFacts("msg_1", MODEL, 0, 5), shows_thinking=shows)
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks[-1]["choices"][0]["finish_reason"] = reason
    chunks.append({"choices": [], "usage": usage_of(reasoning_tokens=2)})
    data = b"".join(event for chunk in chunks for event in writer.events(chunk))
    return events_of(httpx.Response(200, content=data))


def usage_of(**details: int) -> dict[str, Any]:
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1}, "outrider": {}}
    return usage | {"completion_tokens_details": details}


@pytest.mark.parametrize("shows", [True, False])
def test_thinking_is_a_block_before_the_answer(*, shows: bool) -> None:
    deltas = (
        {"role": "assistant", "content": ""},
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "a"},
    )
    message = accumulated(written(*deltas, shows=shows))
    thinking, text = message["content"]
    assert (thinking["type"], thinking["thinking"], text["text"]) == ("thinking", "hm" if shows else "", "a")
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    parts = [AnswerPart("reasoning_content", ["h", "m"]), AnswerPart("content", ["a"])]
    usage: Any = usage_of(reasoning_tokens=2)
    writer = MessageWriter(AnswerFacts("msg_1", MODEL, 0, 5), shows_thinking=shows)
    assert writer.document(parts, FinishReason.STOP, usage, {}) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "other"}, "model needs one of: smollm2"),
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"max_tokens": 0}, "max_tokens needs an integer in 1.."),
        ({"messages": []}, "messages needs a list of at least one message"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role needs 'user', 'assistant' or 'system'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content is missing"),
        ({"messages": ["a"]}, "messages[0] needs an object"),
        ({"messages": [{"role": "user", "content": [{"type": [1]}]}]}, "messages[0].content[0].type [1] is not"),
        ({"messages": [{"role": [1], "content": "a"}]}, "messages[0].role needs"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0].type 'image' is not supported yet",
        ),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
            "messages[0].content[0].type 'tool_use' is not supported yet; needs one of text, tool_result here",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document"}]}],
                    }
                ]
            },
            "messages[0].content[0].content[0].type 'document' is not supported yet",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "txt": "a", "text": "b"}]}]},
            "messages[0].content[0].txt is not a known field; did you mean text?",
        ),
        ({"messages": [*BODY["messages"], {"role": "assistant", "content": "{"}]}, "messages[1].role"),
        ({"tools": [{"type": "web_search_20250305", "name": "a"}]}, "tools[0].type 'web_search_2025"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema is missing"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name needs a name of 1 to 64"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name is missing"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice needs"),
        ({"tools": [WEATHER], "tool_choice": {"type": "required"}}, "tool_choice.type needs"),
        ({"tool_choice": {"type": "any"}}, "tool_choice needs tools to choose from"),
        ({"stop_sequences": [""]}, "stop_sequences[0] needs"),
        ({"stop": ["a"]}, "stop is not supported yet; use stop_sequences"),
        ({"n": 2}, "n is not supported yet"),
        ({"mcp_servers": [{"url": "a"}]}, "mcp_servers is not supported yet"),
        ({"stop_sequence": ["a"]}, "stop_sequence is not a known field; did you mean stop_sequences?"),
        ({"outrider": {"spans": True}}, "outrider.spans is not supported by this API"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format needs"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": 3}}}},
            "output_config.format",
        ),
        ({"thinking": {"type": "maybe"}}, "thinking.type needs"),
        (
            {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"enable_thinking": False}},
            "thinking.type needs to agree with",
        ),
        ({"temperature": 9}, "temperature needs"),
        ({"metadata": {"user_id": 3}}, "metadata.user_id needs"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    refused = post(TextService(limits=TOOLS), PATH, BODY | fields)
    assert refused.status_code == (404 if "model" in fields else 400), refused.text
    found = refused.json()
    assert (found["type"], found["request_id"]) == ("error", refused.headers["request-id"])
    assert refused.headers["request-id"] == refused.headers["x-request-id"]
    assert found["error"]["type"] == ("not_found_error" if "model" in fields else "invalid_request_error")
    assert found["error"]["message"].startswith(message), found


def test_a_long_prompt_is_told_in_the_words_clients_look_for() -> None:
    refused = asked({"messages": [{"role": "user", "content": "word " * 1000}]})
    assert refused.json()["error"]["message"].startswith("prompt is too long: messages needs at most 255 tokens")


def test_a_stored_dialogue_is_refused_as_clients_understand() -> None:
    refused = asked({"thread": {"type": "create"}})
    assert (refused.status_code, refused.json()["error"]["details"]) == (
        400,
        {"error_code": "thread_unsupported_request"},
    )


def test_errors_have_anthropics_form_wherever_they_come_from() -> None:
    gate = CountingGate()
    served = TextService(gate=gate, settings=replace(SETTINGS, max_body_bytes=100))
    found = {
        "authentication_error": asked({}, served, **{"x-api-key": "sk-nobody-0123456789"}),
        "request_too_large": asked({"system": "a" * 200}, served, **{"x-api-key": ALICE}),
        "invalid_request_error": ask(served, "DELETE", PATH),
        "not_found_error": ask(served, "POST", f"{PATH}/batches"),
        "overloaded_error": asked({}, TextService(trouble_at=0, error=GenerationFailedError("gone"))),
    }
    assert {kind: answer.json()["error"]["type"] for kind, answer in found.items()} == {kind: kind for kind in found}
    assert [answer.status_code for answer in found.values()] == [401, 413, 405, 404, 503]
    gate.refusal = OverQuota("tokens_per_minute", 600.0, 700.0, 17)
    refused = asked({}, TextService(gate=gate), **{"x-api-key": ALICE})
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert refused.headers["retry-after"] == "17"


def test_an_error_within_a_stream_is_an_event() -> None:
    service = TextService(trouble_at=6, error=GenerationFailedError("gone"))
    *_, last = events_of(asked({"stream": True}, service))
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")


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
