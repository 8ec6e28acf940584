"""OpenAI's own client at ``/v1/responses``: whole, streamed, parsed, with tools, and what is refused.

The embedded model calls no tools by itself: ``tool_choice`` makes it.
"""

import json
from collections.abc import Callable
from typing import Any

import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from lab.bench.clients.asking.checking import WEATHER, Asked, Check, expect
from lab.bench.clients.asking.person import Person

_QUESTION = "Name the capital of France."
_TOOL: dict[str, Any] = {"type": "function", **WEATHER["function"], "strict": True}
_NAMED = {"type": "function", "name": "weather"}
_LOGPROBS = "message.output_text.logprobs"
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def client_of(asked: Asked, **more: Any) -> Any:
    given: dict[str, Any] = {"base_url": asked.url, "api_key": asked.key or "none", "max_retries": 0, "timeout": 300}
    return openai.OpenAI(**(given | more))


def _given(asked: Asked, **more: Any) -> dict[str, Any]:
    return {"model": asked.model, "input": _QUESTION, "max_output_tokens": 24, "temperature": 0} | more


def _response(asked: Asked, **more: Any) -> Any:
    with client_of(asked) as client:
        return client.responses.create(**_given(asked, **more))


def _events(asked: Asked, **more: Any) -> list[Any]:
    with client_of(asked) as client:
        return list(client.responses.create(stream=True, **_given(asked, **more)))


def _plain(asked: Asked) -> None:
    answer = _response(asked, instructions="Be brief.", metadata={"a": "b"})
    expect(answer.output_text and answer.usage.output_tokens, "a text and its tokens", answer)
    expect(Response.model_validate(answer.model_dump(by_alias=True)), "OpenAI's own type", answer)
    expect(answer.model_dump()["store"] is False, "store: false, as nothing is", answer)


def _as_a_chat(asked: Asked) -> None:
    messages = [{"role": "user", "content": _QUESTION}]
    with client_of(asked) as client:
        said = client.chat.completions.create(model=asked.model, messages=messages, max_tokens=24, temperature=0)
    text = _response(asked).output_text
    expect(text == said.choices[0].message.content, f"the chat's text, {said.choices[0].message.content!r}", text)


def _streamed(asked: Asked) -> str:
    whole = _response(asked)
    events = _events(asked)
    for event in events:
        _EVENT.validate_python(event.model_dump(by_alias=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    expect(text == whole.output_text, f"the whole answer's text, {whole.output_text!r}", text)
    expect(events[-1].response.output_text == text, "the whole answer at the end", events[-1])
    numbers = [event.sequence_number for event in events]
    expect(numbers == list(range(len(events))), "numbers in order", numbers)
    return f"{len(events)} events"


def _accumulated(asked: Asked) -> None:
    with client_of(asked) as client, client.responses.stream(**_given(asked)) as stream:
        events = list(stream)
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    expect(events[-1].response.output_text == snapshots[-1], "the text that its pieces came to", snapshots[-1:])
    expect(snapshots[-1] == _response(asked).output_text, "the whole answer's text", snapshots[-1])


def _parsed(asked: Asked) -> None:
    given = _given(asked, text_format=Person, max_output_tokens=80)
    with client_of(asked) as client:
        answer = client.responses.parse(**given)
    expect(isinstance(answer.output_parsed, Person), "a person", answer.output)


def _scored(asked: Asked) -> None:
    (item,) = _response(asked, include=[_LOGPROBS], top_logprobs=3).output
    entries = item.content[0].logprobs
    expect(entries and all(len(one.top_logprobs) == 3 for one in entries), "three alternatives to each", entries)


def _called(tool_choice: Any) -> Callable[[Asked], None]:
    def check(asked: Asked) -> None:
        given = {"tools": [_TOOL], "tool_choice": tool_choice, "parallel_tool_calls": False, "max_output_tokens": 80}
        (call,) = [item for item in _response(asked, **given).output if item.type == "function_call"]
        expect("city" in json.loads(call.arguments), "a city", call)

    return check


def _streamed_call(asked: Asked) -> None:
    given = {"tools": [_TOOL], "tool_choice": _NAMED, "max_output_tokens": 80}
    (call,) = _response(asked, **given).output
    events = _events(asked, **given)
    text = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    expect(text == call.arguments == events[-1].response.output[0].arguments, call.arguments, text)


def _dialogue(asked: Asked) -> None:
    first = _response(asked, tools=[_TOOL], tool_choice=_NAMED, max_output_tokens=80)
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sunny"}
    turns: list[Any] = [{"role": "user", "content": _QUESTION}, *first.output, result]
    for given in (turns, [turns[0], *(item.model_dump(exclude_none=True) for item in first.output), result]):
        expect(_response(asked, tools=[_TOOL], input=given).output_text is not None, "an answer to the result", given)


def _refused(**more: Any) -> Callable[[Asked], None]:
    def check(asked: Asked) -> None:
        try:
            _response(asked, **more)
        except openai.BadRequestError as error:
            expect(error.param in more, f"the name of {', '.join(more)}", error.param)
            return
        expect(False, "BadRequestError", "an answer")

    return check


def _closed_early(asked: Asked) -> None:
    given = _given(asked, stream=True, max_output_tokens=90, extra_body={"ignore_eos": True})
    for _ in range(3):
        with client_of(asked) as client, client.responses.create(**given) as stream:
            next(iter(stream))
    expect(_response(asked).output_text, "a text", "none")


RESPONSES: tuple[tuple[str, Check], ...] = (
    ("responses", _plain),
    ("responses, the text of the chat", _as_a_chat),
    ("responses streamed, each event of its type", _streamed),
    ("responses.stream", _accumulated),
    ("responses.parse by a pydantic model", _parsed),
    ("responses with logprobs", _scored),
    ("responses: a tool by name", _called(_NAMED)),
    ("responses: a tool, required", _called("required")),
    ("responses: a tool by name, streamed", _streamed_call),
    ("responses: the turn with a tool's result", _dialogue),
    ("responses: previous_response_id: BadRequestError", _refused(previous_response_id="resp_1")),
    ("responses: the background: BadRequestError", _refused(background=True)),
    ("responses closed early, then one", _closed_early),
)
