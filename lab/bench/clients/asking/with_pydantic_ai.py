"""Pydantic AI over chats, responses and messages: runs, streamed, with a tool that is called, of a type.

The embedded model calls no tools by itself: the first request of a dialogue with one names it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import Agent, NativeOutput, Tool, ToolOutput
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from lab.bench.clients.asking.checking import Asked, Check, expect, main

_QUESTION = "Name the capital of France."
_asked_cities, _clients = list[str](), list[AsyncOpenAI | AsyncAnthropic]()
_CALL: dict[str, Any] = {
    "chats": {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
    "responses": {"tool_choice": {"type": "function", "name": "weather"}},
    "messages": {"tool_choice": {"type": "tool", "name": "weather"}},
}


class City(BaseModel):
    """The type of a final output."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)


def weather(city: Annotated[str, Field(max_length=12)]) -> str:
    """Weather of a city."""
    _asked_cities.append(city)
    return "sunny"


class _CallsFirst(WrapperModel):  # type: ignore[misc]
    """A model that has to call the tool until there is a result of it."""

    def __init__(self, wrapped: Model, call: dict[str, Any]) -> None:
        super().__init__(wrapped)
        self._call = call

    def _called_first(self, settings: Any) -> Any:
        return settings if _asked_cities else {**(settings or {}), "extra_body": self._call}

    async def request(self, messages: Any, model_settings: Any, *more: Any) -> Any:
        return await super().request(messages, self._called_first(model_settings), *more)

    def request_stream(self, messages: Any, model_settings: Any, *more: Any) -> Any:
        return super().request_stream(messages, self._called_first(model_settings), *more)


def _model(api: str, asked: Asked) -> Model:
    key: dict[str, Any] = {"api_key": asked.key or "none", "max_retries": 0, "timeout": 300}
    if api == "messages":
        _clients.append(messages := AsyncAnthropic(base_url=asked.url.removesuffix("/v1"), **key))
        return AnthropicModel(asked.model, provider=AnthropicProvider(anthropic_client=messages))
    _clients.append(client := AsyncOpenAI(base_url=asked.url, **key))
    provider = OpenAIProvider(openai_client=client)
    return (OpenAIResponsesModel if api == "responses" else OpenAIChatModel)(asked.model, provider=provider)


def _agent(model: Model, **more: Any) -> Any:
    return Agent(model, instructions="Be brief.", model_settings={"temperature": 0.0, "max_tokens": 64}, **more)


def _within(work: Callable[[str, Asked], Coroutine[Any, Any, None]], api: str) -> Check:
    def check(asked: Asked) -> None:
        async def run() -> None:
            try:
                await work(api, asked)
            finally:
                while _clients:
                    await _clients.pop().close()

        asyncio.run(run())

    return check


async def _plain(api: str, asked: Asked) -> None:
    agent = _agent(_model(api, asked))
    whole = await agent.run(_QUESTION)
    async with agent.run_stream(_QUESTION) as streamed:
        pieces = [piece async for piece in streamed.stream_text(delta=True)]
    expect("".join(pieces) == whole.output, repr(whole.output), "".join(pieces))
    expect(whole.usage.output_tokens, "its tokens", whole.usage)


async def _tool(api: str, asked: Asked) -> None:
    _asked_cities.clear()
    agent = _agent(_CallsFirst(_model(api, asked), _CALL[api]), tools=[Tool(weather)])
    result = await agent.run(_QUESTION)
    parts = [part.part_kind for message in result.all_messages() for part in message.parts]
    expect(len(_asked_cities) == 1 and parts[1:3] == ["tool-call", "tool-return"], "a call and its result", parts)
    expect(isinstance(result.output, str), "a text behind it", result.output)


async def _tool_streamed(api: str, asked: Asked) -> None:
    _asked_cities.clear()
    agent = _agent(_CallsFirst(_model(api, asked), _CALL[api]), tools=[Tool(weather)])
    async with agent.run_stream_events(_QUESTION) as events:
        kinds = [getattr(event, "event_kind", "") async for event in events]
    expect(len(_asked_cities) == 1, "one call", _asked_cities)
    expect("function_tool_call" in kinds and "function_tool_result" in kinds, "a call and its result", kinds)


async def _typed(api: str, asked: Asked) -> None:
    result = await _agent(_model(api, asked), output_type=ToolOutput(City)).run(_QUESTION)
    expect(isinstance(result.output, City), "a city", result.output)


async def _typed_natively(api: str, asked: Asked) -> None:
    """Beside a tool: the answer is of the type, or a call, which the model may make again and again."""
    _asked_cities.clear()
    agent = _agent(_model(api, asked), output_type=NativeOutput(City), tools=[Tool(weather)])
    try:
        result = await agent.run(_QUESTION, usage_limits=UsageLimits(request_limit=2))
    except UsageLimitExceeded:
        expect(_asked_cities, "calls", _asked_cities)
    else:
        expect(isinstance(result.output, City), "a city", result.output)


CHECKS: tuple[tuple[str, Check], ...] = tuple(
    (f"{api}: {done}", _within(work, api))
    for api in _CALL
    for done, work in (
        ("a run, whole and streamed", _plain),
        ("a dialogue with a tool", _tool),
        ("a dialogue with a tool, streamed", _tool_streamed),
        ("an output by a tool", _typed),
        ("an output by a format, beside a tool", _typed_natively),
    )
    if (api, work) != ("messages", _typed_natively)  # it sends formats to Anthropic's own models only
)

if __name__ == "__main__":
    main("pydantic-ai-slim", CHECKS)
