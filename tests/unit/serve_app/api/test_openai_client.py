"""OpenAI's own client reads what the API says."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, RateLimitError

from outrider.contracts.errors import BusyError
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import ALL_TEXT, T, within
from tests.unit.serve_app.api.text_service import MODEL, TEXT, TOKENIZER, TextService


def with_client(work: Callable[[AsyncOpenAI], Awaitable[T]], service: TextService | None = None) -> T:
    async def using() -> T:
        transport = httpx.ASGITransport(make_api(service or TextService()))
        http: Any = httpx.AsyncClient(transport=transport, base_url="http://outrider/v1")
        async with AsyncOpenAI(
            api_key="none", base_url="http://outrider/v1", http_client=http, max_retries=0
        ) as client:
            return await work(client)

    return within(using())


def test_a_chat_with_everything() -> None:
    async def work(client: AsyncOpenAI) -> None:
        chat = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello"}],
            max_completion_tokens=40,
            n=2,
            logprobs=True,
            top_logprobs=2,
            seed=1,
            stop=["never"],
            extra_body={"min_tokens": 3, "outrider": {"spans": True}},
        )
        assert [(choice.index, choice.message.content) for choice in chat.choices] == [(0, ALL_TEXT), (1, ALL_TEXT)]
        for choice in chat.choices:
            assert choice.logprobs is not None
            assert choice.logprobs.content is not None
            assert len(choice.logprobs.content) == 40
            assert [len(entry.top_logprobs) for entry in choice.logprobs.content] == [2] * 40
            assert choice.model_extra is not None
            assert "".join(span["text"] for span in choice.model_extra["outrider"]["spans"]) == ALL_TEXT
        assert chat.usage is not None
        assert chat.usage.completion_tokens == 80
        assert chat.usage.model_extra is not None
        assert chat.usage.model_extra["outrider"]["protocols"] == {"token_ids": 26, "none": 2}

    with_client(work)


def test_a_streamed_chat_with_usage() -> None:
    async def work(client: AsyncOpenAI) -> None:
        texts, tokens, usages = ["", ""], [0, 0], []
        async for event in await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=40,
            n=2,
            logprobs=True,
            stream=True,
            stream_options={"include_usage": True},
        ):
            usages.append(event.usage)
            for choice in event.choices:
                texts[choice.index] += choice.delta.content or ""
                tokens[choice.index] += len((choice.logprobs and choice.logprobs.content) or [])
        assert (texts, tokens) == ([ALL_TEXT] * 2, [40] * 2)
        assert usages[-1] is not None
        assert usages[-1].completion_tokens == 80
        assert usages[:-1] == [None] * (len(usages) - 1)

    with_client(work)


def test_completions_of_several_prompts() -> None:
    async def work(client: AsyncOpenAI) -> None:
        completion = await client.completions.create(
            model=MODEL, prompt=["Once", "upon"], n=2, max_tokens=40, logprobs=2, echo=True
        )
        prompts = ["Once", "Once", "upon", "upon"]
        assert [choice.text for choice in completion.choices] == [prompt + ALL_TEXT for prompt in prompts]
        logprobs = completion.choices[3].logprobs
        assert logprobs is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.tokens is not None
        assert logprobs.tokens[1] == "The"
        assert logprobs.model_dump()["token_logprobs"][0] is None
        scored = await client.completions.create(model=MODEL, prompt=[5, 6], max_tokens=0, logprobs=0, echo=True)
        assert scored.choices[0].logprobs is not None
        assert len(scored.choices[0].logprobs.token_logprobs or []) == 2

    with_client(work)


def test_a_streamed_completion() -> None:
    async def work(client: AsyncOpenAI) -> None:
        text, offsets = "", list[int]()
        async for event in await client.completions.create(
            model=MODEL, prompt="Once", max_tokens=40, logprobs=0, stream=True
        ):
            text += event.choices[0].text
            logprobs = event.choices[0].logprobs
            offsets += (logprobs and logprobs.text_offset) or []
        assert text == ALL_TEXT
        assert len(offsets) == len(TOKENIZER.encode(TEXT)[:40])

    with_client(work)


def test_errors_are_the_clients_own() -> None:
    async def bad(client: AsyncOpenAI) -> None:
        await client.completions.create(model=MODEL, prompt="x", n=17)

    with pytest.raises(BadRequestError, match=r"n needs an integer in 1\.\.16, found 17") as refused:
        with_client(bad)
    assert (refused.value.param, refused.value.code) == ("n", "invalid_value")

    async def unknown(client: AsyncOpenAI) -> None:
        await client.models.retrieve("other")

    with pytest.raises(NotFoundError, match="model needs one of: smollm2"):
        with_client(unknown)

    async def fine(client: AsyncOpenAI) -> None:
        await client.completions.create(model=MODEL, prompt="x", stream=True)

    with pytest.raises(RateLimitError, match="try again later"):
        with_client(fine, TextService(trouble_at=0, error=BusyError("full")))
