"""What the Responses API refuses, by its own names, and how its answers fail."""

import json
from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.errors import GenerationFailedError
from serve_app.api.api_forms import AnswerFacts
from serve_app.api.http_errors import answer_for
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.responses.bodies import LOGPROBS
from serve_app.api.responses.form import RESPONSES
from tests.unit.serve_app.api.asking import RESPONSE, error_of, post
from tests.unit.serve_app.api.declared import events_in
from tests.unit.serve_app.api.test_responses import PATH, TOOLS, WITH_TOOLS
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TextService

USER = {"role": "user", "content": "a"}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {  # of fields: the one that is named, and what is said of it
    "an earlier response": ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole input"),
    "a conversation": ({"conversation": "c"}, "conversation", "send the whole input"),
    "the background": ({"background": True}, "background", "wait for the answer"),
    "a template": ({"prompt": {"id": "p"}}, "prompt", "instructions and input"),
    "several choices": ({"n": 2}, "n", "use /v1/chat/completions"),
    "another name of a length": ({"max_tokens": 5}, "max_tokens", "use max_output_tokens"),
    "a length of nothing": ({"max_output_tokens": 0}, "max_output_tokens", "an integer in 1..100"),
    "an image": (
        {"input": [USER, {"role": "user", "content": [{"type": "input_image", "detail": "low"}]}]},
        "input[1].content[0].type",
        "text only",
    ),
    "a reference": ({"input": [{"type": "item_reference", "id": "m"}]}, "input[0].type", "nothing is stored"),
    "another item": ({"input": [{"type": "web_search_call", "id": "w"}]}, "input[0].type", "items are message"),
    "another role": ({"input": [USER, {"role": "tool", "content": "a"}]}, "input[1].role", "one of user"),
    "a call without a name": ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name", "missing"),
    "a result of nothing": (
        {"input": [{"type": "function_call_output", "output": "a"}]},
        "input[0].call_id",
        "missing",
    ),
    "a message without content": ({"input": [{"role": "user"}]}, "input[0].content", "missing"),
    "no items": ({"input": []}, "input", "at least one item"),
    "no input": ({"input": None}, "input", "missing"),
    "a tool of OpenAI's": ({"tools": [{"type": "file_search"}]}, "tools[0].type", "functions that you call yourself"),
    "a search that must be": (
        {"tools": [{"type": "web_search"}], "tool_choice": "required"},
        "tools[0].type",
        "functions that you call yourself",
    ),
    "a tool of free text": ({"tools": [{"type": "custom", "name": "patch"}]}, "tools[0].type", "a function with one"),
    "tools of a namespace": ({"tools": [{"type": "namespace", "name": "a"}]}, "tools[0].type", "tools of their own"),
    "a call of free text": (
        {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "a"}]},
        "input[0].type",
        "send it as function_call",
    ),
    "an output of free text": (
        {"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": "a"}]},
        "input[0].type",
        "send it as function_call_output",
    ),
    "a tool of a long name": ({"tools": [{"type": "function", "name": "a" * 65}]}, "tools[0].name", "at most 64"),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
    "a tool of a wrong name": ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "letters, digits"),
    "a tool that is not there": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "name": "other"}},
        "tool_choice.name",
        "one of the tools",
    ),
    "allowed tools that are not there": (
        {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": ["x"]}]}},
        "tool_choice.tools[0].name",
        "one of the tools",
    ),
    "many allowed tools": (
        {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "clock"}] * 129}},
        "tool_choice.tools",
        "at most 128 entries",
    ),
    "a choice of another kind": ({"tools": TOOLS, "tool_choice": {"type": "mcp"}}, "tool_choice", "'allowed_tools'"),
    "a format without a schema": ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "missing"),
    "a format of chats": ({"response_format": {"type": "json_object"}}, "response_format", "use text.format"),
    "scores without asking for them": ({"top_logprobs": 2}, "top_logprobs", LOGPROBS),
    "options of a stream without one": ({"stream_options": {}}, "stream_options", "stream: true"),
    "a long input": ({"input": [USER, {"role": "user", "content": "long " * 300}]}, "input", "a context of 256"),
    "a class that is not there": ({"outrider": {"slo_class": "warp"}}, "outrider.slo_class", "one of"),
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_cannot_be_said_is_refused_by_its_own_name(asked: str) -> None:
    fields, field, needed = REFUSED[asked]
    service = TextService(limits=WITH_TOOLS)
    refused = post(service, PATH, RESPONSE | fields)
    assert refused.status_code == 400
    assert error_of(refused)["param"] == field
    assert field in error_of(refused)["message"]
    assert needed in error_of(refused)["message"]
    assert service.requests == []


@pytest.mark.parametrize(
    "asked", ["another item", "a reference", "a call of free text", "an output of free text", "a tool of free text"]
)
def test_types_are_looked_at_before_fields(asked: str) -> None:
    fields, field, needed = REFUSED[asked]
    fields = json.loads(json.dumps(fields).replace('"type"', '"nobody_knows": 1, "type"'))
    refused = post(TextService(limits=replace(WITH_TOOLS, strict_fields=True)), PATH, RESPONSE | fields)
    assert error_of(refused)["param"] == field
    assert needed in error_of(refused)["message"]


def test_an_error_amid_a_stream_is_an_event_and_the_answers_end() -> None:
    response = post(TextService(trouble_at=6, error=GenerationFailedError("secret")), PATH, RESPONSE | {"stream": True})
    *_, error, failed = [json.loads(data) for data in events_in(response.text)]
    assert (error["type"], error["code"], failed["type"]) == ("error", "unavailable", "response.failed")
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": error["message"]}
    assert failed["sequence_number"] == error["sequence_number"] + 1


def test_an_error_before_anything_else_follows_the_answers_beginning() -> None:
    """OpenAI's client raises something else at an error before that."""
    read = RESPONSES.read(json.dumps(RESPONSE | {"stream": True}).encode(), LIMITS, IgnoredFields())
    assert read.writer is not None
    writer = read.writer(AnswerFacts("resp_1", MODEL, 0, 5))
    events = events_in(b"".join(writer.failure(answer_for(GenerationFailedError("lost")))).decode())
    kinds = [json.loads(data)["type"] for data in events]
    assert kinds == ["response.created", "response.in_progress", "error", "response.failed"]
