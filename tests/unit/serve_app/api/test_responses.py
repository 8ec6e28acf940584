"""OpenAI's Responses API: how its items are read as a chat, and how its events and documents are written from one."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from outrider.contracts.errors import GenerationFailedError
from serve_app.answers import ChatCompletionChunk
from serve_app.api.api_forms import AnswerFacts
from serve_app.api.openai.fields.ignored import IGNORED_HEADER, IgnoredFields
from serve_app.api.openapi.document import openapi_document
from serve_app.api.responses.bodies import LOGPROBS
from serve_app.api.responses.form import RESPONSES
from tests.unit.serve_app.api.asking import ALL_TEXT, RESPONSE, ask, post
from tests.unit.serve_app.api.declared import Declared, events_in
from tests.unit.serve_app.api.test_tools import CLOCK, WEATHER, hermes
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TextService

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
DOCUMENT = openapi_document(LIMITS, keys=True)
FUNCTIONS: list[dict[str, Any]] = [WEATHER, CLOCK]
TOOLS: list[dict[str, Any]] = [{"type": "function", **tool["function"]} for tool in FUNCTIONS]
CALLS = "Let me see. " + hermes("weather", '{"city": "Rome"}') + "\n" + hermes("clock", "{}") + " END"
WITH_TOOLS = replace(LIMITS, tool_format="hermes")
CALLING = {"tools": TOOLS, "stop": " END", "max_output_tokens": 90}
SCORED = {"include": [LOGPROBS], "top_logprobs": 2}
TOLD = {"return_token_ids": True, "outrider": {"spans": True, "details": True, "explain": True}}
ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a stop string": {"stop": " over"},
    "one token": {"max_output_tokens": 1},
    "log-probabilities": SCORED,
    "all that is told": SCORED | TOLD,
    "tools": CALLING,
    "tools and all that is told": CALLING | SCORED | TOLD,
    "a tier": {"service_tier": "priority", "instructions": "Be brief.", "metadata": {"a": "b"}},
    "a format": {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    "classes": {"outrider": {"slo_class": ["speed_8", "best_effort"]}},
}


def answered(asked: str, *, stream: bool = False) -> tuple[Declared, list[Any]]:
    """What is answered, held to the document and to OpenAI's own types."""
    fields = ASKED[asked]
    calls = "tools" in fields
    limits = replace(LIMITS, fingerprint="fp_1", tool_format="hermes" if calls else "")
    response = post(
        TextService(limits=limits, texts=(CALLS,) if calls else TextService().texts),
        PATH,
        RESPONSE | fields | {"stream": stream},
    )
    assert response.status_code == 200, response.text
    declared = Declared(DOCUMENT)
    found = declared.check("post", PATH, 200, response.headers["content-type"], response.text)
    for each in found:
        (EVENT if stream else TypeAdapter(Response)).validate_python(each)
    return declared, found


def read(**fields: Any) -> Any:
    """The chat of a request."""
    body = {"model": MODEL, "input": "a"} | fields
    return RESPONSES.read(json.dumps(body).encode(), WITH_TOOLS, IgnoredFields()).body


def written(*deltas: dict[str, Any], finish: str = "stop", fields: dict[str, Any] | None = None) -> list[Any]:
    """Events of chunks with these deltas."""
    body = {"model": MODEL, "input": "a", "stream": True} | (fields or {})
    asked = RESPONSES.read(json.dumps(body).encode(), WITH_TOOLS, IgnoredFields())
    assert asked.writer is not None
    writer = asked.writer(AnswerFacts("resp_1", MODEL, 1, 5))
    chunks = [chunk(delta) for delta in ({"role": "assistant", "content": ""}, *deltas)]
    chunks += [chunk({}, finish), {**chunk({}), "choices": [], "usage": USAGE}]
    text = b"".join(piece for each in chunks for piece in writer.events(each)).decode()
    events = [json.loads(data) for data in events_in(text)]
    declared = Declared(DOCUMENT)
    schema = DOCUMENT["paths"][PATH]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    for event in events:
        declared.check_as(schema["properties"]["data"]["contentSchema"], event)
        EVENT.validate_python(event)
    return events


def chunk(delta: dict[str, Any], finish: str | None = None) -> ChatCompletionChunk:
    choice: Any = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "resp_1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}


USAGE: Any = {
    "prompt_tokens": 5,
    "completion_tokens": 4,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
        "reasoning_tokens": 3,
    },
    "outrider": post(TextService(), PATH, RESPONSE).json()["usage"]["outrider"],
}
THOUGHT = ({"reasoning_content": "Let me"}, {"reasoning_content": " see."}, {"content": "It is"}, {"content": " four."})
CALLED = (
    {
        "tool_calls": [
            {"index": 0, "id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}}
        ]
    },
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]},
    {"tool_calls": [{"index": 1, "id": "call_b", "type": "function", "function": {"name": "clock", "arguments": ""}}]},
    {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
)


@pytest.mark.parametrize("asked", ASKED)
def test_a_stream_ends_with_the_whole_answer(asked: str) -> None:
    _, events = answered(asked, stream=True)
    _, (whole,) = answered(asked)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]
    assert last["type"] == f"response.{whole['status']}"
    said, other = last["response"], whole
    for each in (said, other):
        for item in each["output"]:
            item.pop("id")
            item.pop("call_id", None)
    names = {"output", "status", "usage", "incomplete_details", *ASKED[asked]} & whole.keys() - {"outrider"}
    assert {name: said[name] for name in names} == {name: other[name] for name in names}
    told = [event for event in (*events, last["response"]) if "outrider" in event]
    spans = [span["text"] for event in told for span in event["outrider"].get("spans", ())]
    assert "".join(spans) == "".join(span["text"] for span in whole.get("outrider", {}).get("spans", ()))


def test_every_field_that_is_described_is_met_in_an_answer() -> None:
    seen = set[str]()
    for asked in ASKED:
        for stream in (False, True):
            seen |= answered(asked, stream=stream)[0].seen
    failing = TextService(trouble_at=6, error=GenerationFailedError("lost"))
    declared = Declared(DOCUMENT)
    response = post(failing, PATH, RESPONSE | {"stream": True})
    declared.check("post", PATH, 200, response.headers["content-type"], response.text)
    content = DOCUMENT["paths"][PATH]["post"]["responses"]["200"]["content"]
    unmet = declared.fields_below(content) - seen - declared.seen
    of_thoughts = {name for name in unmet if name.startswith(("Reasoning", "PlanEstimate", "ExplainedRound"))}
    assert unmet - of_thoughts <= {"OutriderUsage.choices", *UNMET}


UNMET = {  # of services that judge, and of classes that are lowered
    "OutriderUsage.judged_tokens",
    "OutriderUsage.overrides",
    "OutriderUsage.reproducible",
    "SloUsage.preferred_class",
}


def test_what_a_model_thinks_comes_before_what_it_says() -> None:
    events = written(*THOUGHT)
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    thought, said = events[-1]["response"]["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert said["content"][0]["text"] == "It is four."
    usage = events[-1]["response"]["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 3}
    assert usage["input_tokens_details"]["cached_tokens"] == 2
    for before, after in pairwise(event for event in events if "output_index" in event):
        assert after["output_index"] - before["output_index"] in (0, 1)


def test_calls_come_as_items_with_their_arguments_in_pieces() -> None:
    events = written({"content": "I look."}, *CALLED)
    said, first, second = events[-1]["response"]["output"]
    assert said["content"][0]["text"] == "I look."
    assert [(call["call_id"], call["name"], call["arguments"]) for call in (first, second)] == [
        ("call_a", "weather", '{"city": "Rome"}'),
        ("call_b", "clock", "{}"),
    ]
    pieces = [event for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(each["delta"] for each in pieces if each["item_id"] == first["id"]) == first["arguments"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["status"] for item in added] == ["in_progress"] * 3
    assert [item.get("name") for item in added] == [None, "weather", "clock"]


@pytest.mark.parametrize("deltas", [(), THOUGHT[:2]], ids=["nothing", "thoughts"])
def test_an_answer_that_is_cut_is_incomplete(deltas: Any) -> None:
    *_, last = written(*deltas, finish="length")
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in last["response"]["output"]] == ["incomplete"]


SAID = {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}


def test_items_of_one_turn_are_one_message_and_results_are_a_tools() -> None:
    chat = read(
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Do."},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [SAID]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noon"}]},
            {"type": "function_call", "call_id": "c3", "name": "clock", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c3", "output": "one"},
            {"role": "assistant", "content": "Done."},
            {"role": "assistant", "content": "Really."},
            {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "on and on"}]},
        ],
    )  # fmt: skip
    found = [message.model_dump(exclude_none=True, exclude_defaults=True) for message in chat.messages]
    for message in found:
        message["content"] = chat.messages[found.index(message)].text
        if "tool_calls" in message:
            message["tool_calls"] = [call["id"] for call in message["tool_calls"]]
    assert found == [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Do."},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": ["c1", "c2"]},
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
        {"role": "tool", "content": "noon", "tool_call_id": "c2"},
        {"role": "assistant", "content": "", "tool_calls": ["c3"]},
        {"role": "tool", "content": "one", "tool_call_id": "c3"},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
        {"role": "assistant", "content": "", "reasoning_content": "on and on"},
    ]


def test_options_are_those_of_chats() -> None:
    schema = {"type": "object", "properties": {}}
    chat = read(
        tools=TOOLS,
        tool_choice={"type": "function", "name": "weather"},
        text={"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"},
        **SCORED,
    )
    assert chat.tools == [WEATHER, CLOCK]
    assert chat.tool_choice == {"type": "function", "function": {"name": "weather"}}
    assert chat.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": schema, "strict": True},
    }
    assert (chat.verbosity, chat.reasoning_effort, chat.logprobs, chat.top_logprobs) == ("low", "low", True, 2)
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}
    chat = read(tools=TOOLS, tool_choice=allowed)
    assert (chat.tools, chat.tool_choice) == ([CLOCK], "required")


def test_an_answer_is_taken_back_as_it_is() -> None:
    service = TextService(limits=WITH_TOOLS, texts=(CALLS, "done"))
    first = post(service, PATH, RESPONSE | CALLING).json()
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "ok"} for call in calls]
    turns = [{"role": "user", "content": "Hello"}, *first["output"], *results]
    second = post(service, PATH, RESPONSE | {"tools": TOOLS, "input": turns})
    assert second.status_code == 200, second.text
    assert IGNORED_HEADER not in second.headers
    assert first["store"] is False


def test_what_is_without_effect_is_told() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}
    body = RESPONSE | {"include": ["reasoning.encrypted_content"], "input": [thought, {"role": "user", "content": "a"}]}
    answer = post(TextService(), PATH, body | {"store": True, "truncation": "auto", "client": 1})
    assert answer.headers[IGNORED_HEADER] == "client, include, input.encrypted_content"
    assert (answer.json()["store"], answer.json()["truncation"]) == (False, "disabled")


def test_a_text_behind_a_call_belongs_to_its_message() -> None:
    """So that the call's result stands right behind it."""
    chat = read(
        input=[
            {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call_output", "call_id": "c1", "output": "noon"},
        ]
    )
    assert [(message.role, message.text) for message in chat.messages] == [("assistant", "I look."), ("tool", "noon")]


def test_texts_around_calls_belong_to_one_message() -> None:
    """As documents have them."""
    calls = [{"type": "function_call", "call_id": name, "name": "clock", "arguments": "{}"} for name in ("c1", "c2")]
    outputs = [{"type": "function_call_output", "call_id": name, "output": "noon"} for name in ("c1", "c2")]
    said = {"type": "message", "role": "assistant", "content": [SAID]}
    chat = read(input=[said, calls[0], {"role": "assistant", "content": "And."}, calls[1], said, *outputs, said])
    assert [(message.role, message.text) for message in chat.messages] == [
        ("assistant", "I look.\nAnd.\nI look."),
        ("tool", "noon"),
        ("tool", "noon"),
        ("assistant", "I look."),
    ]
    assert len(chat.messages[0].tool_calls or ()) == 2


def test_a_search_that_the_model_may_choose_is_left_out_and_told() -> None:
    """Agents send it whether they want it or not."""
    response = post(TextService(), PATH, RESPONSE | {"tools": [{"type": "web_search", "search_context_size": "low"}]})
    assert response.status_code == 200, response.text
    assert response.headers[IGNORED_HEADER] == "tools.type.web_search"
    assert response.json()["tools"] == []


def test_a_number_beyond_all_is_repeated_as_null() -> None:
    schema = {"type": "object", "properties": {"a": {"default": 1}}}
    text = json.dumps(RESPONSE | {"tools": [{"type": "function", "name": "f", "parameters": schema}]})
    text = text.replace('"default": 1', '"default": 1e999')
    response = ask(
        TextService(limits=WITH_TOOLS),
        "POST",
        PATH,
        content=text.encode(),
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 200, response.text
    tool = json.loads(response.text, parse_constant=pytest.fail)["tools"][0]
    assert tool["parameters"]["properties"]["a"] == {"default": None}


def test_an_answer_has_the_id_that_it_is_given() -> None:
    assert post(TextService(), PATH, RESPONSE | {"request_id": "mine"}).json()["id"] == "resp_mine"
    whole = post(TextService(), PATH, RESPONSE).json()
    assert whole["output"][0]["content"][0]["text"] == ALL_TEXT
    assert Response.model_validate(whole).output_text == ALL_TEXT
