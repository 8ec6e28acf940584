"""LlamaIndex's ``OpenAILike``: complete, chat, streamed, and a dialogue with a tool, streamed."""

from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from lab.bench.clients.asking.checking import CHAT, Asked, expect, main

_TEXT = CHAT[0]["content"]


def _llm(asked: Asked, **more: Any) -> OpenAILike:
    given = {"model": asked.model, "api_base": asked.url, "api_key": asked.key or "none", "max_retries": 0}
    kind = {"is_chat_model": True, "is_function_calling_model": True, "context_window": 2048}
    return OpenAILike(**(given | kind | {"temperature": 0, "max_tokens": 80} | more))


def _complete(asked: Asked) -> None:
    expect(_llm(asked, is_chat_model=False).complete("One, two,").text, "a text", "none")


def _chat(asked: Asked) -> None:
    expect(_llm(asked).chat([ChatMessage(_TEXT)]).message.content, "a text", "none")


def _stream(asked: Asked) -> None:
    whole = _llm(asked).chat([ChatMessage(_TEXT)]).message.content
    text = "".join(each.delta or "" for each in _llm(asked).stream_chat([ChatMessage(_TEXT)]))
    expect(text == whole, f"the whole answer's text, {whole!r}", text)


def _weather(city: str) -> str:
    """Weather of a city."""
    return f"{city}: sunny"


def _dialogue(asked: Asked) -> None:
    """A call of the tool by force, its result, and an answer, each streamed."""
    llm, tool = _llm(asked), FunctionTool.from_defaults(_weather, name="weather")
    turns = [ChatMessage(_TEXT)]
    *_, last = llm.stream_chat_with_tools([tool], chat_history=turns, tool_required=True)
    (call,) = llm.get_tool_calls_from_response(last)
    expect(call.tool_name == "weather" and "city" in call.tool_kwargs, "a call of weather", call)
    result = str(tool(**call.tool_kwargs))
    turns += [last.message, ChatMessage(result, role="tool", additional_kwargs={"tool_call_id": call.tool_id})]
    *_, answer = llm.stream_chat_with_tools([tool], chat_history=turns)
    expect(answer.message.content or llm.get_tool_calls_from_response(answer), "an answer to the result", answer)


CHECKS = (
    ("complete", _complete),
    ("chat", _chat),
    ("stream_chat", _stream),
    ("a dialogue with a tool, streamed", _dialogue),
)

if __name__ == "__main__":
    main("llama-index-llms-openai-like", CHECKS)
