"""LangChain's ``ChatOpenAI``: invoke, stream, batch, structured output, bound tools."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from lab.bench.clients.asking.checking import CHAT, PERSON, WEATHER, Asked, expect, main

_TEXT = CHAT[0]["content"]
_SCHEMA = {"title": "person", "description": "A person", **PERSON}


def _chat(asked: Asked, **more: Any) -> Any:
    given = {"model": asked.model, "base_url": asked.url, "api_key": asked.key or "none", "max_retries": 0}
    return ChatOpenAI(**given, temperature=0, **({"max_tokens": 24} | more))


def _invoke(asked: Asked) -> None:
    answer = _chat(asked).invoke(_TEXT)
    expect(answer.content and answer.usage_metadata["output_tokens"], "a text and usage", answer)


def _stream(asked: Asked) -> None:
    chat = _chat(asked, stream_usage=True)
    chunks = list(chat.stream(_TEXT))
    expect("".join(chunk.content for chunk in chunks) == chat.invoke(_TEXT).content, "the whole answer's text", chunks)
    expect(any(chunk.usage_metadata for chunk in chunks), "usage", chunks[-1])


def _batch(asked: Asked) -> None:
    answers = _chat(asked).batch([_TEXT, "Count to three."])
    expect(len(answers) == 2 and all(answer.content for answer in answers), "two texts", answers)


def _structured(method: str) -> Any:
    def check(asked: Asked) -> None:
        found = _chat(asked, max_tokens=80).with_structured_output(_SCHEMA, method=method).invoke(_TEXT)
        expect(isinstance(found, dict) and set(found) == {"name", "age"}, "a person", found)

    return check


def _bound(asked: Asked) -> None:
    chat = _chat(asked, max_tokens=80).bind_tools([WEATHER], tool_choice="weather")
    answer = chat.invoke(_TEXT)
    (call,) = answer.tool_calls
    expect(call["name"] == "weather" and "city" in call["args"], "a call of weather", call)
    turn = [HumanMessage(_TEXT), answer, ToolMessage("sunny", tool_call_id=call["id"])]
    expect(_chat(asked).bind_tools([WEATHER]).invoke(turn), "an answer to the result", turn)


def _dialogue(asked: Asked) -> None:
    """A call by name, its result, and an answer, each streamed and summed as LangGraph does."""
    chat = _chat(asked, max_tokens=80)
    first, *rest = chat.bind_tools([WEATHER], tool_choice="weather").stream(_TEXT)
    for chunk in rest:
        first += chunk
    (call,) = first.tool_calls
    expect(call["name"] == "weather" and "city" in call["args"], "a call of weather", call)
    turns = [HumanMessage(_TEXT), first, ToolMessage("sunny", tool_call_id=call["id"])]
    chunks = list(chat.bind_tools([WEATHER], tool_choice="none").stream(turns))
    expect("".join(chunk.content for chunk in chunks), "an answer to the result", chunks)


CHECKS = (
    ("invoke", _invoke),
    ("stream", _stream),
    ("batch", _batch),
    ("with_structured_output, json_schema", _structured("json_schema")),
    ("with_structured_output, function_calling", _structured("function_calling")),
    ("bind_tools, and the turn with the result", _bound),
    ("a dialogue with a tool, streamed", _dialogue),
)

if __name__ == "__main__":
    main("langchain-openai", CHECKS)
