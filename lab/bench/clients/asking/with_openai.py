"""OpenAI's own client: models, chats, structured output, tools, completions, responses, errors, retries, async."""

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

from lab.bench.clients.asking.checking import CHAT, NAMED, WEATHER, Asked, NotTriedError, expect, main
from lab.bench.clients.asking.openai_responses import RESPONSES
from lab.bench.clients.asking.person import Person


def _client(asked: Asked, **more: Any) -> Any:
    given: dict[str, Any] = {
        "base_url": asked.url,
        "api_key": asked.key or "none",
        "max_retries": 0,
        "timeout": 300,
    }
    return openai.OpenAI(**(given | more))


def _chat(asked: Asked, **more: Any) -> Any:
    body = {"model": asked.model, "messages": CHAT, "max_tokens": 24, "temperature": 0} | more
    return _client(asked).chat.completions.create(**body)


def _models(asked: Asked) -> None:
    client = _client(asked)
    names = [model.id for model in client.models.list()]
    expect(asked.model in names, f"{asked.model} among the models", names)
    expect(client.models.retrieve(asked.model).id == asked.model, "the model by its name", names)


def _plain(asked: Asked) -> None:
    answer = _chat(asked)
    expect(answer.choices[0].message.content, "a text", answer.choices[0])
    expect(
        answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, "a sum", answer.usage
    )


def _streamed(asked: Asked) -> None:
    whole = _chat(asked).choices[0].message.content
    events = list(_chat(asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    expect(text == whole, f"the text of the whole answer, {whole!r}", text)
    expect(events[-1].usage and not events[-1].choices, "usage in an event of its own at the end", events[-1])


def _request_id(asked: Asked) -> None:
    raw = _client(asked).chat.completions.with_raw_response.create(model=asked.model, messages=CHAT, max_tokens=4)
    expect(raw.headers.get("x-request-id") and raw.parse().choices, "X-Request-Id and an answer", dict(raw.headers))


def _developer(asked: Asked) -> None:
    said = [_chat(asked, messages=[{"role": role, "content": "Be brief."}, *CHAT]) for role in ("developer", "system")]
    texts = {answer.choices[0].message.content for answer in said}
    expect(len(texts) == 1, "the same text as by the older name, system", texts)


def _taken_back(asked: Asked) -> None:
    message = _chat(asked).choices[0].message
    for turn in (message, message.model_dump()):
        expect(_chat(asked, messages=[*CHAT, turn, *CHAT]).choices[0].message.content, "a text", turn)


def _choices(asked: Asked) -> None:
    answer = _chat(asked, n=2, temperature=1.0, seed=3)
    expect([one.index for one in answer.choices] == [0, 1], "two choices", answer.choices)


def _seed(asked: Asked) -> None:
    said = {_chat(asked, temperature=1.0, seed=7).choices[0].message.content for _ in range(2)}
    expect(len(said) == 1, "the same text twice by one seed", said)


def _stop(asked: Asked) -> None:
    choice = _chat(asked, stop=["France"]).choices[0]
    expect("France" not in choice.message.content and choice.finish_reason == "stop", "a text that stops", choice)


def _logprobs(asked: Asked) -> None:
    entries = _chat(asked, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    expect(entries and all(len(one.top_logprobs) == 3 for one in entries), "three alternatives to each", entries)
    expect(all(one.token == one.top_logprobs[0].token for one in entries), "the likeliest where it is greedy", entries)


def _parsed(asked: Asked) -> None:
    answer = _client(asked).chat.completions.parse(
        model=asked.model, messages=CHAT, response_format=Person, temperature=0, max_tokens=80
    )
    expect(isinstance(answer.choices[0].message.parsed, Person), "a person", answer.choices[0].message)


def _parsed_streamed(asked: Asked) -> None:
    given = {"model": asked.model, "messages": CHAT, "temperature": 0, "max_tokens": 80}
    with _client(asked).chat.completions.stream(**given, response_format=Person) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    expect(isinstance(message.parsed, Person), "a person", message)
    expect({"content.delta", "content.done"} <= kinds, "its pieces and its end", kinds)


def _parsed_call(asked: Asked) -> None:
    tool = openai.pydantic_function_tool(Person, name="register")
    answer = _client(asked).chat.completions.parse(
        model=asked.model, messages=CHAT, tools=[tool], tool_choice="required", temperature=0, max_tokens=80
    )
    (call, *_) = answer.choices[0].message.tool_calls
    expect(isinstance(call.function.parsed_arguments, Person), "a person", call)


def _calls(choice: Any, reason: str) -> Any:
    (call,) = choice.message.tool_calls
    expect("city" in json.loads(call.function.arguments), "a city", call)
    expect(choice.finish_reason == reason, f"finish_reason {reason}", choice.finish_reason)
    return call


def _called(tool_choice: Any, reason: str) -> Callable[[Asked], None]:
    def check(asked: Asked) -> None:
        answer = _chat(asked, tools=[WEATHER], tool_choice=tool_choice, parallel_tool_calls=False, max_tokens=80)
        _calls(answer.choices[0], reason)

    return check


def _without_parameters(asked: Asked) -> None:
    clock = {"type": "function", "function": {"name": "clock", "description": "Tells the time"}}
    (call, *_) = _chat(asked, tools=[clock], tool_choice="required", max_tokens=80).choices[0].message.tool_calls
    expect(json.loads(call.function.arguments) == {}, "no arguments", call)


def _offered(asked: Asked) -> str:
    choice = _chat(asked, tools=[WEATHER], tool_choice="auto", max_tokens=80).choices[0]
    calls = choice.message.tool_calls or []
    expect(calls or choice.message.content, "a text or a call", choice)
    expect(choice.finish_reason == ("tool_calls" if calls else choice.finish_reason), "tool_calls", choice)
    return f"{len(calls)} calls"


def _streamed_call(asked: Asked) -> None:
    body = {"tools": [WEATHER], "tool_choice": NAMED, "max_tokens": 80}
    with _client(asked).chat.completions.stream(model=asked.model, messages=CHAT, temperature=0, **body) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    whole = _chat(asked, **body).choices[0]
    same = choice.message.tool_calls[0].function.arguments == whole.message.tool_calls[0].function.arguments
    expect(same, "the call of the whole answer", choice.message)


def _result_turn(asked: Asked) -> None:
    first = _chat(asked, tools=[WEATHER], tool_choice=NAMED, max_tokens=80).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
    answer = _chat(asked, tools=[WEATHER], messages=[*CHAT, first.model_dump(), result])
    expect(answer.choices[0].message.role == "assistant", "an answer", answer)


def _completions(asked: Asked) -> None:
    answer = _client(asked).completions.create(
        model=asked.model, prompt=["Once upon", "The sky"], max_tokens=4, echo=True, logprobs=1, temperature=0
    )
    expect([one.text[:4] for one in answer.choices] == ["Once", "The "], "both prompts, echoed", answer.choices)
    for one in answer.choices:
        scores = one.logprobs.token_logprobs
        expect(scores[0] is None and all(score <= 0 for score in scores[1:]), "scores behind the first token", scores)


def _refused(kind: type[Exception], **more: Any) -> Callable[[Asked], None]:
    def check(asked: Asked) -> None:
        try:
            _chat(asked, **more)
        except kind:
            return
        expect(False, kind.__name__, "an answer")

    return check


def _too_long(asked: Asked) -> None:
    context = _client(asked).models.retrieve(asked.model).model_extra["max_model_len"]
    try:
        _chat(asked, messages=[{"role": "user", "content": "never " * context}])
    except openai.BadRequestError as error:
        expect(error.code == "context_length_exceeded", "code context_length_exceeded", error.code)
        return
    expect(False, "BadRequestError", "an answer")


def _wrong_key(asked: Asked) -> None:
    if not asked.key:
        raise NotTriedError("needs a service with keys, and OUTRIDER_API_KEY")
    try:
        _client(asked, api_key="sk-of-nobody").models.list()
    except openai.AuthenticationError:
        return
    expect(False, "AuthenticationError", "an answer")


def _one_at_a_time(asked: Asked) -> str:
    if not asked.single_key:
        raise NotTriedError("needs --single-key, a key with concurrent_responses: 1")
    statuses = list[int]()
    client = _client(asked, api_key=asked.single_key)
    body: dict[str, Any] = {"model": asked.model, "messages": CHAT, "temperature": 0}
    long = client.chat.completions.create(**body, stream=True, max_tokens=1000, extra_body={"ignore_eos": True})
    next(iter(long))
    try:
        client.chat.completions.create(**body, max_tokens=4)
        expect(False, "RateLimitError", "an answer")
    except openai.RateLimitError as error:
        expect("retry-after" in error.response.headers, "Retry-After", dict(error.response.headers))
    http = openai.DefaultHttpxClient(event_hooks={"response": [lambda response: statuses.append(response.status_code)]})
    again = _client(asked, api_key=asked.single_key, max_retries=8, http_client=http)
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(again.chat.completions.create, **body, max_tokens=4)
        while not statuses and not answer.done():  # it is refused once, then retries
            time.sleep(0.01)
        long.close()
        answer.result()
    expect(statuses[0] == 429 and statuses[-1] == 200, "refused, and answered in the end", statuses)
    return f"statuses {statuses}"


def _cancelled(asked: Asked) -> None:
    for _ in range(3):
        stream = _chat(asked, stream=True, max_tokens=90, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    _plain(asked)


def _async(asked: Asked) -> None:
    async def several() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=asked.url, api_key=asked.key or "none", max_retries=0) as client:
            body: Any = {"model": asked.model, "messages": CHAT, "max_tokens": 12, "temperature": 0}
            return list(await asyncio.gather(*(client.chat.completions.create(**body) for _ in range(4))))

    said = {answer.choices[0].message.content for answer in asyncio.run(several())}
    expect(len(said) == 1, "one greedy text of four at once", said)


CHECKS = (
    ("models listed and by name", _models),
    ("chat", _plain),
    ("chat streamed, with usage", _streamed),
    ("chat, with_raw_response", _request_id),
    ("a developer's message", _developer),
    ("an answer's message as a turn", _taken_back),
    ("chat with n=2", _choices),
    ("chat by a seed, twice", _seed),
    ("chat with stop", _stop),
    ("chat with logprobs", _logprobs),
    ("chat.completions.parse by a pydantic model", _parsed),
    ("chat.completions.stream by a pydantic model", _parsed_streamed),
    ("pydantic_function_tool, required, parsed", _parsed_call),
    ("a tool by name", _called(NAMED, "stop")),
    ("a tool, required", _called("required", "tool_calls")),
    ("a tool without parameters, required", _without_parameters),
    ("a tool if the model likes", _offered),
    ("a tool by name, streamed", _streamed_call),
    ("the turn with a tool's result", _result_turn),
    ("completions of two prompts with echo and logprobs", _completions),
    ("another model: NotFoundError", _refused(openai.NotFoundError, model="other")),
    ("n=99: BadRequestError", _refused(openai.BadRequestError, n=99)),
    ("a key that nobody has: AuthenticationError", _wrong_key),
    ("a prompt that is too long: context_length_exceeded", _too_long),
    ("one response at a time: RateLimitError, Retry-After, retried", _one_at_a_time),
    ("streams closed early, then a chat", _cancelled),
    ("four chats at once by the async client", _async),
    *RESPONSES,
)

if __name__ == "__main__":
    main("openai", CHECKS)
