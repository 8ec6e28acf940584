"""Sends a planned load over HTTP and notes what comes back, event by event."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx

from bench.load.plan import LoadPlan, PlannedRequest
from bench.load.report import COMPLETED, Answer, Event, Usage
from outrider.contracts.errors import OutriderError

_MAX_DETAIL_CHARS = 300


class ServiceUnusableError(OutriderError):
    """The service cannot be reached, or does not answer a plain request."""


def open_client(url: str, timeout_s: float) -> httpx.AsyncClient:
    """As many connections as there are requests under way, so that none waits for another."""
    return httpx.AsyncClient(base_url=url, timeout=timeout_s, limits=httpx.Limits(max_connections=None))


async def served_model(client: httpx.AsyncClient) -> str:
    """The name of the first model served.

    Raises:
        ServiceUnusableError: no answer, or not OpenAI's list of models.
    """
    try:
        response = await client.get("/v1/models", timeout=10)
        response.raise_for_status()
        return str(response.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise ServiceUnusableError(
            f"needs a service with OpenAI's API at {client.base_url}, found {error!r}; start one or pass --url"
        ) from error


async def counts_along(client: httpx.AsyncClient, model: str, timeout_s: float) -> bool:
    """Warm the service up with one short request; returns whether it takes ``continuous_usage_stats`` (vLLM's).

    Raises:
        ServiceUnusableError: it answers the request neither with nor without it.
    """
    request = PlannedRequest(0.0, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    found = ""
    for counting in (True, False):
        body = streaming(request, model, counting=counting) | {"max_tokens": 4}
        answer = await send(client, request, body, since_start_s=time.perf_counter, timeout_s=timeout_s)
        if answer.outcome == COMPLETED:
            return any(event.tokens_so_far is not None for event in answer.events)
        found = f"{answer.outcome}: {answer.detail}"
    raise ServiceUnusableError(
        f"needs {client.base_url} to complete a short chat with {model}, found {found}; "
        "see the service's log, or pass another --model"
    )


def streaming(request: PlannedRequest, model: str, *, counting: bool) -> dict[str, object]:
    """The body as it is sent. ``counting`` asks for the running token count in each event."""
    options = {"include_usage": True} | ({"continuous_usage_stats": True} if counting else {})
    return {"model": model, **request.body, "stream": True, "stream_options": options}


async def drive(
    client: httpx.AsyncClient,
    plan: LoadPlan,
    model: str,
    *,
    counting: bool,
    timeout_s: float,
    on_answer: Callable[[], None] = lambda: None,
) -> tuple[Answer, ...]:
    """Send each request when it is due, whatever has become of the others, and wait for all answers."""
    started_at_s = time.perf_counter()

    def since_start_s() -> float:
        return time.perf_counter() - started_at_s

    async def one(request: PlannedRequest) -> Answer:
        body = streaming(request, model, counting=counting)
        answer = await send(client, request, body, since_start_s=since_start_s, timeout_s=timeout_s)
        on_answer()
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = []
        for request in plan.requests:
            await asyncio.sleep(request.at_s - since_start_s())
            tasks.append(group.create_task(one(request)))
    return tuple(task.result() for task in tasks)


async def closed_loop(
    client: httpx.AsyncClient,
    requests: Sequence[PlannedRequest],
    model: str,
    *,
    clients: int,
    counting: bool,
    timeout_s: float,
    on_answer: Callable[[], object] = lambda: None,
) -> tuple[Answer, ...]:
    """Send all requests, ``clients`` at a time; times count from the first one."""
    started_at_s = time.perf_counter()
    waiting = iter(requests)

    def since_start_s() -> float:
        return time.perf_counter() - started_at_s

    async def work() -> list[Answer]:
        answers = []
        for request in waiting:
            due, body = replace(request, at_s=since_start_s()), streaming(request, model, counting=counting)
            answers.append(await send(client, due, body, since_start_s=since_start_s, timeout_s=timeout_s))
            on_answer()
        return answers

    found = await asyncio.gather(*(work() for _ in range(clients)))
    return tuple(answer for answers in found for answer in answers)


async def send(
    client: httpx.AsyncClient,
    request: PlannedRequest,
    body: dict[str, object],
    *,
    since_start_s: Callable[[], float],
    timeout_s: float,
) -> Answer:
    """Send one request and read its stream to the end; failures are outcomes, not exceptions."""
    stream = _Stream(since_start_s)
    sent_s = since_start_s()
    detail = ""
    try:
        async with asyncio.timeout(timeout_s), client.stream("POST", request.path, json=body) as response:
            if response.status_code == httpx.codes.OK:
                async for line in response.aiter_lines():
                    stream.take(line)
                outcome, detail = stream.outcome, stream.detail
            else:
                outcome, detail = f"http_{response.status_code}", (await response.aread()).decode(errors="replace")
    except (TimeoutError, httpx.TimeoutException):
        outcome = "timeout"
    except httpx.TransportError as error:
        outcome = "unreachable" if isinstance(error, httpx.ConnectError) else "disconnected"
        detail = repr(error)
    except (httpx.DecodingError, ValueError, LookupError, TypeError, AttributeError) as error:  # not what we can read
        outcome, detail = "malformed", repr(error)
    return Answer(
        path=request.path,
        due_s=request.at_s,
        sent_s=sent_s,
        ended_s=stream.done_s or since_start_s(),
        outcome=outcome,
        events=tuple(stream.events),
        usage=stream.usage,
        detail=detail[:_MAX_DETAIL_CHARS],
    )


class _Stream:
    """What has been read of one stream of server-sent events."""

    def __init__(self, since_start_s: Callable[[], float]) -> None:
        self._now_s = since_start_s
        self.events: list[Event] = []
        self.usage: Usage | None = None
        self.outcome, self.detail = "disconnected", ""
        self.done_s: float | None = None

    def take(self, line: str) -> None:
        """Read one line."""
        if not line.startswith("data:"):
            return
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self.outcome, self.done_s = COMPLETED, self._now_s()
            return
        content = json.loads(data)
        if "error" in content:
            self.outcome, self.detail = "error_event", data
            return
        usage = None if content.get("usage") is None else _usage(content["usage"])
        self.usage = usage or self.usage
        for choice in content["choices"]:
            text = choice["delta"].get("content") if "delta" in choice else choice["text"]
            self.events.append(Event(self._now_s(), len(text or ""), None if usage is None else usage.output))


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt=int(usage["prompt_tokens"]),
        output=int(usage["completion_tokens"]),
        cached=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
        accepted=int(details.get("accepted_prediction_tokens") or 0),
        rejected=int(details.get("rejected_prediction_tokens") or 0),
    )
