"""Anthropic's own client: models, messages, tools, thinking, structured output, counting, errors, retries, async.

The embedded model is too small to call tools by itself, so calls are forced by ``tool_choice``.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic

from lab.bench.clients.asking.checking import CHAT, WEATHER, Asked, NotTriedError, expect, main
from lab.bench.clients.asking.person import Person

_WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Weather of a city",
    "input_schema": WEATHER["function"]["parameters"],
}
_BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "Answer in English."},
]


def _client(asked: Asked, **more: Any) -> Any:
    given: dict[str, Any] = {
        "base_url": asked.url.removesuffix("/v1"),
        "api_key": asked.key or "none",
        "max_retries": 0,
        "timeout": 300,
    }
    return anthropic.Anthropic(**(given | more))


def _body(asked: Asked, **more: Any) -> dict[str, Any]:
    """``temperature`` has no argument of its own in this client."""
    own = {"temperature": 0, **more.pop("extra_body", {})}
    return {"model": asked.model, "messages": CHAT, "max_tokens": 24, "extra_body": own} | more


def _message(asked: Asked, **more: Any) -> Any:
    message = _client(asked).messages.create(**_body(asked, **more))
    anthropic.types.Message.model_validate(message.to_dict())
    return message


def _streamed_message(asked: Asked, **more: Any) -> tuple[set[str], Any]:
    """Types of the events, and the message that the client makes of them."""
    with _client(asked).messages.stream(**_body(asked, **more)) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_message()
    anthropic.types.Message.model_validate(message.to_dict())
    return kinds, message


def _plain_content(message: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in block.to_dict().items() if name != "id"} for block in message.content]


def _models(asked: Asked) -> None:
    client = _client(asked)
    names = [model.id for model in client.models.list()]
    expect(asked.model in names, f"{asked.model} among the models", names)
    expect(client.models.retrieve(asked.model).created_at.year > 2000, "the model by its name", names)


def _plain(asked: Asked) -> None:
    message = _message(asked)
    expect(message.content[0].text, "a text", message)
    expect(message.stop_reason in ("end_turn", "max_tokens"), "a reason to stop", message.stop_reason)
    usage = message.usage
    expect(usage.input_tokens + usage.cache_read_input_tokens > 0 < usage.output_tokens, "tokens", usage)


def _streamed(asked: Asked) -> None:
    whole, (kinds, message) = _message(asked), _streamed_message(asked)
    expect(_plain_content(message) == _plain_content(whole), f"the content of {whole}", message)
    expect(message.stop_reason == whole.stop_reason, whole.stop_reason, message.stop_reason)
    expect(message.usage.output_tokens == whole.usage.output_tokens, "the same tokens", message.usage)
    expect({"message_start", "content_block_delta", "message_stop"} <= kinds, "a stream's events", kinds)


def _seed(asked: Asked) -> None:
    said = {_message(asked, extra_body={"temperature": 1.0, "seed": 7}).content[0].text for _ in range(2)}
    expect(len(said) == 1, "the same text twice by one seed", said)


def _stop(asked: Asked) -> None:
    message = _message(asked, stop_sequences=["zzzz", "France"])
    expect((message.stop_reason, message.stop_sequence) == ("stop_sequence", "France"), "which one stopped", message)


def _as_agents_do(asked: Asked) -> None:
    message = _client(asked).beta.messages.create(
        **_body(asked, system=_BLOCKS, tools=[_WEATHER], metadata={"user_id": '{"device_id":"a","session_id":"b"}'}),
        betas=["interleaved-thinking-2025-05-14", "context-management-2025-06-27"],
        thinking={"type": "adaptive"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )
    expect(message.role == "assistant", "an answer", message)


def _called(tool_choice: Any) -> Callable[[Asked], None]:
    def check(asked: Asked) -> None:
        body = {"tools": [_WEATHER], "tool_choice": tool_choice, "max_tokens": 80}
        message = _message(asked, **body)
        (call,) = [block for block in message.content if block.type == "tool_use"]
        expect(message.stop_reason == "tool_use" and "city" in call.input, "a city", message)
        _, streamed = _streamed_message(asked, **body)
        expect(_plain_content(streamed) == _plain_content(message), f"the calls of {message}", streamed)

    return check


def _result_turn(asked: Asked) -> None:
    first = _message(asked, tools=[_WEATHER], tool_choice={"type": "any"}, max_tokens=80)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "sunny"}]}
        for block in first.content
        if block.type == "tool_use"
    ]
    turns = [*CHAT, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    expect(_message(asked, tools=[_WEATHER], messages=turns).role == "assistant", "an answer", turns)


def _runner(asked: Asked) -> None:
    told = list[str]()

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Weather of a city."""
        told.append(city)
        return "sunny"

    body = _body(asked, max_tokens=80, tool_choice={"type": "tool", "name": "weather"})
    runner = _client(asked).beta.messages.tool_runner(**body, tools=[weather], max_iterations=2)
    messages = list(runner)
    expect(messages and told, "a tool that was run", messages)


def _thinking(asked: Asked) -> str:
    thought = {"type": "thinking", "thinking": "It is Paris.", "signature": "abc"}
    turns = [*CHAT, {"role": "assistant", "content": [thought, {"type": "text", "text": "Paris"}]}, *CHAT]
    message = _message(asked, messages=turns, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
    kinds = [block.type for block in message.content]
    expect("text" in kinds or "thinking" in kinds, "an answer", message)
    return f"blocks {kinds}"


def _parsed(asked: Asked) -> None:
    message = _client(asked).messages.parse(**_body(asked, max_tokens=80), output_format=Person)
    expect(isinstance(message.parsed_output, Person), "a person", message)


def _counted(asked: Asked) -> None:
    usage = _message(asked, system=_BLOCKS).usage
    count = _client(asked).messages.count_tokens(model=asked.model, messages=CHAT, system=_BLOCKS).input_tokens
    expect(count == usage.input_tokens + usage.cache_read_input_tokens, f"the tokens of {usage}", count)


def _refused(kind: type[anthropic.APIStatusError], told: str, **more: Any) -> Callable[[Asked], None]:
    def check(asked: Asked) -> None:
        try:
            _message(asked, **more)
        except kind as error:
            expect(told in str(error) and error.request_id, f"{told} and the request's id", str(error))
            return
        expect(False, kind.__name__, "an answer")

    return check


def _wrong_key(asked: Asked) -> None:
    if not asked.key:
        raise NotTriedError("needs a service with keys, and OUTRIDER_API_KEY")
    try:
        _client(asked, api_key="sk-of-nobody").messages.create(**_body(asked))
    except anthropic.AuthenticationError:
        expect(_client(asked, api_key=None, auth_token=asked.key).models.list().data, "a bearer's answer", "none")
        return
    expect(False, "AuthenticationError", "an answer")


def _cancelled(asked: Asked) -> None:
    for _ in range(3):
        stream = _client(asked).messages.create(**_body(asked, max_tokens=90), stream=True)
        next(iter(stream))
        stream.close()
    _plain(asked)


def _async(asked: Asked) -> None:
    async def several() -> list[Any]:
        url = asked.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=url, api_key=asked.key or "none", max_retries=0) as client:
            return list(await asyncio.gather(*(client.messages.create(**_body(asked)) for _ in range(4))))

    said = {message.content[0].text for message in asyncio.run(several())}
    expect(len(said) == 1, "the same text four times", said)


if __name__ == "__main__":
    main(
        "anthropic",
        [
            ("models", _models),
            ("message", _plain),
            ("streamed", _streamed),
            ("seed", _seed),
            ("stop_sequences", _stop),
            ("fields and betas of agents", _as_agents_do),
            ("a tool by name", _called({"type": "tool", "name": "weather"})),
            ("a tool required", _called({"type": "any", "disable_parallel_tool_use": True})),
            ("the turn with a result", _result_turn),
            ("the client's own loop over tools", _runner),
            ("thinking", _thinking),
            ("parse by a pydantic model", _parsed),
            ("count_tokens", _counted),
            ("an unknown model", _refused(anthropic.NotFoundError, "model needs one of", model="other")),
            (
                "an image",
                _refused(
                    anthropic.BadRequestError,
                    "messages[0].content[0].type",
                    messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}],
                ),
            ),
            (
                "a tool of Anthropic's",
                _refused(anthropic.BadRequestError, "tools[0].type", tools=[{"type": "bash_20250124", "name": "bash"}]),
            ),
            ("a wrong key, and one as a bearer's", _wrong_key),
            ("streams closed early", _cancelled),
            ("async", _async),
        ],
    )
