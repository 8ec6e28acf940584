"""OpenAI's Agents SDK over ``/v1/responses``: runs, streamed, with a tool that is called, of a type, handed on.

The embedded model calls no tools by itself: ``tool_choice`` makes it, and only in the first turn.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict, Field

from lab.bench.clients.asking.checking import Asked, Check, expect, main

set_tracing_disabled(True)
_QUESTION = "Name the capital of France."
_asked_cities = list[str]()


class City(BaseModel):
    """The type of a final output."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)


def weather(city: str) -> str:
    """Weather of a city."""
    _asked_cities.append(city)
    return "sunny"


_WEATHER = function_tool(weather)


def _agent(client: AsyncOpenAI, asked: Asked, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    given = {"temperature": 0.0, "max_tokens": 24} | (settings or {})
    model = OpenAIResponsesModel(model=asked.model, openai_client=client)
    return Agent(name="helper", instructions="Be brief.", model=model, model_settings=ModelSettings(**given), **more)


def _within(work: Callable[[AsyncOpenAI, Asked], Coroutine[Any, Any, None]]) -> Check:
    def check(asked: Asked) -> None:
        async def run() -> None:
            key = asked.key or "none"
            async with AsyncOpenAI(base_url=asked.url, api_key=key, max_retries=0, timeout=300) as client:
                await work(client, asked)

        asyncio.run(run())

    return check


async def _plain(client: AsyncOpenAI, asked: Asked) -> None:
    result = await Runner.run(_agent(client, asked), _QUESTION)
    expect(result.final_output, "a text", result)
    expect(result.raw_responses[0].usage.output_tokens, "its tokens", result.raw_responses)


async def _streamed(client: AsyncOpenAI, asked: Asked) -> None:
    whole = await Runner.run(_agent(client, asked), _QUESTION)
    result = Runner.run_streamed(_agent(client, asked), _QUESTION)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    expect("".join(pieces) == result.final_output == whole.final_output, repr(whole.final_output), "".join(pieces))


async def _tool(client: AsyncOpenAI, asked: Asked) -> None:
    _asked_cities.clear()
    settings = {"tool_choice": "weather", "parallel_tool_calls": False, "max_tokens": 64}
    result = await Runner.run(_agent(client, asked, settings, tools=[_WEATHER]), _QUESTION)
    kinds = [item.type for item in result.new_items]
    expect(len(_asked_cities) == 1, "one call", _asked_cities)
    expect(kinds[:2] == ["tool_call_item", "tool_call_output_item"], "a call and its output, then an answer", kinds)


async def _tool_streamed(client: AsyncOpenAI, asked: Asked) -> None:
    _asked_cities.clear()
    settings = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 64}
    result = Runner.run_streamed(_agent(client, asked, settings, tools=[_WEATHER]), _QUESTION)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    expect(names[:2] == ["tool_called", "tool_output"] and _asked_cities, "a call and its output", names)


async def _typed(client: AsyncOpenAI, asked: Asked) -> None:
    result = await Runner.run(_agent(client, asked, {"max_tokens": 64}, output_type=City), _QUESTION)
    expect(isinstance(result.final_output, City), "a city", result.final_output)


async def _turns(client: AsyncOpenAI, asked: Asked) -> None:
    agent = _agent(client, asked)
    first = await Runner.run(agent, _QUESTION)
    again: Any = [*first.to_input_list(), {"role": "user", "content": "And of Italy?"}]
    second = await Runner.run(agent, again)
    expect(second.final_output is not None, "a text", second)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("a run", _within(_plain)),
    ("a run, streamed", _within(_streamed)),
    ("a dialogue with a tool by name", _within(_tool)),
    ("a dialogue with a tool, required, streamed", _within(_tool_streamed)),
    ("an output of a pydantic model", _within(_typed)),
    ("a second turn over the items of the first", _within(_turns)),
)

if __name__ == "__main__":
    main("openai-agents", CHECKS)
