"""What the Messages API refuses, and its form of errors."""

from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.errors import GenerationFailedError
from outrider.tenants.quotas import OverQuota
from tests.unit.serve_app.api.asking import MESSAGE as BODY
from tests.unit.serve_app.api.asking import ask, post
from tests.unit.serve_app.api.messages.test_messages import PATH, TOOLS, WEATHER, asked, events_of
from tests.unit.serve_app.api.test_http_keys import ALICE, CountingGate
from tests.unit.serve_app.api.text_service import SETTINGS, TextService


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
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name needs a name of letters"),
        ({"tools": [{"name": "a" * 129, "input_schema": {}}]}, "tools[0].name needs a name of letters"),
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
