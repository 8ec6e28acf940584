"""LiteLLM under the prefix ``openai/``: completion, streamed, acompletion, schema, tools, errors."""

import asyncio
import json
import os
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or its import asks GitHub

import litellm

from lab.bench.clients.asking.checking import CHAT, NAMED, PERSON, WEATHER, Asked, expect, main


def _given(asked: Asked, **more: Any) -> dict[str, Any]:
    whom = {"model": f"openai/{asked.model}", "api_base": asked.url, "api_key": asked.key or "none", "num_retries": 0}
    return {**whom, "messages": CHAT, "temperature": 0, "max_tokens": 24} | more


def _plain(asked: Asked) -> None:
    answer = litellm.completion(**_given(asked))
    expect(answer.choices[0].message.content and answer.usage.completion_tokens, "a text and usage", answer)


def _streamed(asked: Asked) -> None:
    whole = litellm.completion(**_given(asked)).choices[0].message.content
    text = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**_given(asked, stream=True)))
    expect(text == whole, f"the whole answer's text, {whole!r}", text)


def _async(asked: Asked) -> None:
    answer = asyncio.run(litellm.acompletion(**_given(asked)))
    expect(answer.choices[0].message.content, "a text", answer)


def _schema(asked: Asked) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    answer = litellm.completion(**_given(asked, response_format=form, max_tokens=80))
    expect(set(json.loads(answer.choices[0].message.content)) == {"name", "age"}, "a person", answer)


def _tool(asked: Asked) -> None:
    first = litellm.completion(**_given(asked, tools=[WEATHER], tool_choice=NAMED, max_tokens=80)).choices[0].message
    expect("city" in json.loads(first.tool_calls[0].function.arguments), "a call", first)
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
    answer = litellm.completion(**_given(asked, tools=[WEATHER], messages=[*CHAT, first.model_dump(), result]))
    expect(answer.choices[0].message.role == "assistant", "an answer to the result", answer)


def _dialogue(asked: Asked) -> None:
    """A call by name, its result, and an answer, each streamed."""

    def turn(**more: Any) -> Any:
        chunks = list(litellm.completion(**_given(asked, stream=True, tools=[WEATHER], max_tokens=80, **more)))
        return litellm.stream_chunk_builder(chunks).choices[0].message

    first = turn(tool_choice=NAMED)
    expect("city" in json.loads(first.tool_calls[0].function.arguments), "a call", first)
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
    answer = turn(tool_choice="none", messages=[*CHAT, first.model_dump(), result])
    expect(answer.content, "an answer to the result", answer)


def _refused(asked: Asked) -> None:
    for kind, more in ((litellm.NotFoundError, {"model": "openai/other"}), (litellm.BadRequestError, {"n": 99})):
        try:
            litellm.completion(**_given(asked, **more))
        except kind:
            continue
        expect(False, kind.__name__, "an answer")


CHECKS = (
    ("completion", _plain),
    ("completion, streamed", _streamed),
    ("acompletion", _async),
    ("response_format json_schema", _schema),
    ("a tool by name, and the turn with its result", _tool),
    ("a dialogue with a tool, streamed", _dialogue),
    ("NotFoundError and BadRequestError", _refused),
)

if __name__ == "__main__":
    main("litellm", CHECKS)
