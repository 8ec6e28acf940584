"""How answers of the Messages API are written: texts, calls, thinking and why they stop."""

import json
from typing import Any

import httpx
import pytest

from outrider.contracts.requests import FinishReason
from serve_app.api.api_forms import AnswerFacts
from serve_app.api.messages.writing import MessageWriter
from serve_app.api.openai.writing.answer_parts import AnswerPart
from tests.unit.serve_app.api.asking import ALL_TEXT
from tests.unit.serve_app.api.messages.test_messages import CALL, TOOLS, WEATHER, accumulated, both, events_of, text_of
from tests.unit.serve_app.api.text_service import MODEL


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
