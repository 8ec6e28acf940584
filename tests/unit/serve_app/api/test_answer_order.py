"""Responses and Messages tell the parts of an answer in the order they were made in, whole and streamed."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from outrider.text.tokens import TokenTable
from serve_app.answers import ChatLogprobs
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.tools.deltas import MessageDeltas
from serve_app.api.openai.writing import response_form
from serve_app.api.openai.writing.choice_reader import ChoiceDelta, ShownToken
from serve_app.api.openai.writing.message_pieces import MessagePieces, ScoredPiece
from serve_app.api.responses.bodies import LOGPROBS
from tests.unit.serve_app.api import text_service
from tests.unit.serve_app.api.asking import MESSAGE, RESPONSE, post
from tests.unit.serve_app.api.declared import events_in
from tests.unit.serve_app.api.messages.test_messages import accumulated
from tests.unit.serve_app.api.messages.test_messages import events_of as message_events_of
from tests.unit.serve_app.api.reasoning.model_families import service_of
from tests.unit.serve_app.api.test_tools import CLOCK, TABLE, WEATHER, hermes

ROME = '{"city": "Rome"}'
TEXT = f"<think>Hm.</think>First. {hermes('weather', ROME)} Then 🦊 {hermes('clock', '{}')}\nLast. "
ORDER = ["reasoning", "First. ", "weather", " Then 🦊 ", "clock", "\nLast. "]
SCORED = {"include": [LOGPROBS], "top_logprobs": 1, "max_output_tokens": 95}
TOOLS: list[Any] = [WEATHER, CLOCK]
OF_RESPONSES = RESPONSE | SCORED | {"tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}
OF_MESSAGES = MESSAGE | {
    "max_tokens": 95,
    "thinking": {"type": "enabled"},
    "tools": [{"name": tool["function"]["name"], "input_schema": {"type": "object"}} for tool in TOOLS],
}


def response_of(*, stream: bool, text: str = TEXT, body: dict[str, Any] = OF_RESPONSES, family: str = "qwen3") -> Any:
    form = {"qwen3": "hermes", "gpt_oss": "harmony", "llama4": "llama3_json"}[family]
    answer = post(service_of(family, text, form), "/v1/responses", body | {"stream": stream})
    assert answer.status_code == 200, answer.text
    return json.loads(list(events_in(answer.text))[-1])["response"] if stream else answer.json()


def told(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["name"])
    return "reasoning" if item["type"] == "reasoning" else str(item["content"][0]["text"])


@pytest.mark.parametrize("per_round", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("stream", [True, False])
def test_items_and_scores_of_responses(per_round: int, *, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text's tokens are scored with it, however many came at once."""
    monkeypatch.setattr(text_service, "TOKENS_PER_ROUND", per_round)
    output = response_of(stream=stream)["output"]
    assert [told(item) for item in output] == ORDER
    for item in output:
        if item["type"] == "message":
            text = item["content"][0]["text"]
            scored = b"".join(bytes(entry["bytes"]) for entry in item["content"][0]["logprobs"])
            assert scored.decode() in (text, text.lstrip(" \n"), text.rstrip())
            assert scored.decode().strip() == text.strip()


def test_a_stream_of_responses_is_the_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[Any]()
    for stream, per_round in ((False, 3), (True, 3), (False, 1), (True, 200)):
        monkeypatch.setattr(text_service, "TOKENS_PER_ROUND", per_round)
        output = response_of(stream=stream)["output"]
        found.append([{name: value for name, value in item.items() if "id" not in name} for item in output])
    assert found == found[:1] * 4


def test_blocks_of_messages() -> None:
    whole = post(service_of("qwen3", TEXT, "hermes"), "/v1/messages", OF_MESSAGES).json()
    assert [block.get("text") or block.get("name") or block["type"] for block in whole["content"]] == [
        "thinking",
        *ORDER[1:],
    ]
    streamed = post(service_of("qwen3", TEXT, "hermes"), "/v1/messages", OF_MESSAGES | {"stream": True})
    message = accumulated(message_events_of(streamed))
    for each in (whole, message):
        for block in each["content"]:
            block.pop("id", None)
    assert message["content"] == whole["content"]


ANALYSIS, COMMENTARY = "<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>"
NEXT, FINAL = "<|end|><|start|>assistant", "<|channel|>final<|message|>"
CHANNELS = {  # text; thoughts and texts as items; all thoughts and all text of a chat
    "thoughts": (f"{ANALYSIS}One.{NEXT}{ANALYSIS}Two.{NEXT}{FINAL}Hi.", ["One.\nTwo.", "Hi."], "One.\nTwo.", "Hi."),
    "texts": (f"{COMMENTARY}I look.{NEXT}{FINAL}Hi.", ["I look.\nHi."], "", "I look.\nHi."),
    "in turn": (
        f"{ANALYSIS}One.{NEXT}{COMMENTARY}I look.{NEXT}{ANALYSIS}Two.{NEXT}{FINAL}Hi.",
        ["One.", "I look.", "Two.", "Hi."],
        "One.\nTwo.",
        "I look.\nHi.",
    ),
    "an empty one": (f"{ANALYSIS}One.{NEXT}{ANALYSIS}{NEXT}{FINAL}Hi.", ["One.", "Hi."], "One.", "Hi."),
    "an empty one before what has no header": (
        f"{ANALYSIS}<|end|>Hello my dear world",
        ["Hello my dear world"],
        "",
        "Hello my dear world",
    ),
    "beginning with one": (
        f"{ANALYSIS}One.{NEXT}{ANALYSIS}\nTwo.{NEXT}{FINAL}Hi.",
        ["One.\n\nTwo.", "Hi."],
        "One.\n\nTwo.",
        "Hi.",
    ),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("text", "items", "thought", "said"), CHANNELS.values(), ids=CHANNELS.keys())
def test_messages_of_a_channel_are_lines(text: str, items: list[str], thought: str, said: str, *, stream: bool) -> None:
    output = response_of(stream=stream, text=text, family="gpt_oss")["output"]
    assert [item["content"][0]["text"] for item in output] == items
    for item in output:
        scored = b"".join(bytes(each["bytes"]) for each in item["content"][0].get("logprobs", ())).decode()
        assert scored == ("" if item["type"] == "reasoning" else item["content"][0]["text"].replace("\n", ""))
    chat = {"model": RESPONSE["model"], "messages": [{"role": "user", "content": "?"}], "max_tokens": 90}
    answer = post(service_of("gpt_oss", text, "harmony"), "/v1/chat/completions", chat | {"stream": stream})
    if stream:
        deltas = [json.loads(data)["choices"][0]["delta"] for data in events_in(answer.text) if data != "[DONE]"]
        found = ["".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning_content", "content")]
    else:
        message = answer.json()["choices"][0]["message"]
        found = [message.get("reasoning_content", ""), message["content"]]
    assert found == [thought, said]


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_behind_a_call_begins_no_line(*, stream: bool) -> None:
    call = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>'
    text = f"{COMMENTARY}I look.{NEXT}{call}<|start|>assistant{FINAL}Done."
    output = response_of(stream=stream, text=text, family="gpt_oss")["output"]
    assert [told(item) for item in output] == ["I look.", "weather", "Done."]


@pytest.mark.parametrize("before", [[], ["Hm "], [hermes("clock", "{}"), "Hm "]])
def test_held_text_that_repeats_what_was_told_keeps_its_tokens(before: list[str]) -> None:
    message = MessageDeltas(MessageForm(tools="hermes"), TABLE, "c", in_parts=True)
    pieces, found, offset = MessagePieces(message, of_texts=True), list[ScoredPiece](), 0
    texts = [*before, "<", "<", " x", "<", "<"]
    for number, text in enumerate(texts):
        found += pieces.push(ChoiceDelta(text, tokens=(ShownToken(number, offset, offset + len(text), None),)))
        offset += len(text)
    found += pieces.finish()
    scored = [token.token_id for delta, tokens in found if delta.get("content") for token in tokens]
    assert scored == [number for number, text in enumerate(texts) if "tool_call" not in text]


@pytest.mark.parametrize("stream", [True, False])
def test_scores_of_much_held_text_are_written_in_a_thread(*, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in JSON may be a call up to its end: its tokens' scores come at once then."""
    on_loop, written = list[int](), response_form._chat_logprobs  # noqa: SLF001 (the place where it runs)

    def seen(tokens: Sequence[ShownToken], table: TokenTable) -> ChatLogprobs:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            on_loop.append(len(tokens))
        return written(tokens, table)

    monkeypatch.setattr(response_form, "_chat_logprobs", seen)
    text = json.dumps({"a": "one two " * 200})
    output = response_of(stream=stream, text=text, body=OF_RESPONSES | {"max_output_tokens": 900}, family="llama4")
    (item,) = output["output"]
    assert item["content"][0]["text"] == text
    assert len(item["content"][0]["logprobs"]) > 256
    assert max(on_loop, default=0) < 256
