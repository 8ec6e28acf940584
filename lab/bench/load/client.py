"""Sends a planned load over HTTP and records the answers, event by event."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from cluster.options import key_headers, own_api_key
from lab.bench.load.plan import LoadPlan, PlannedRequest
from lab.bench.load.report import COMPLETED, Answer, Event, Usage
from outrider.contracts.errors import OutriderError

_MAX_DETAIL_CHARS = 300


class ServiceUnusableError(OutriderError):
    """The service cannot be reached, or does not answer a plain request."""


def open_client(url: str, timeout_s: float) -> httpx.AsyncClient:
    """A client with a connection per concurrent request, so that none waits for another."""
    headers = key_headers(own_api_key())
    return httpx.AsyncClient(
        base_url=url, timeout=timeout_s, limits=httpx.Limits(max_connections=None), headers=headers
    )


async def served_model(client: httpx.AsyncClient) -> str:
    """Name of the first served model."""
    try:
        response = await client.get("/v1/models", timeout=10)
        response.raise_for_status()
        return str(response.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise ServiceUnusableError(
            f"needs a service with OpenAI's API at {client.base_url}, found {error!r}; start one or pass --url"
        ) from error


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model to query. ``counting``: request running token counts in events; ``timeout_s``: for a whole answer."""

    client: httpx.AsyncClient
    model: str
    counting: bool
    timeout_s: float

    def body(self, request: PlannedRequest) -> dict[str, object]:
        """The body to send."""
        options = {"include_usage": True} | ({"continuous_usage_stats": True} if self.counting else {})
        return {"model": self.model, **request.body, "stream": True, "stream_options": options}


async def endpoint_of(client: httpx.AsyncClient, model: str, timeout_s: float) -> Endpoint:
    """Warm the service up with one short request, and test whether it takes ``continuous_usage_stats`` (vLLM's)."""
    short = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    request, found = PlannedRequest(0.0, "/v1/chat/completions", short), ""
    for counting in (True, False):
        answer = await send(Endpoint(client, model, counting, timeout_s), request, time.perf_counter)
        if answer.outcome == COMPLETED:
            counted = any(event.tokens_so_far is not None for event in answer.events)
            return Endpoint(client, model, counted, timeout_s)
        found = f"{answer.outcome}: {answer.detail}"
    raise ServiceUnusableError(
        f"needs {client.base_url} to complete a short chat with {model}, found {found}; "
        "see the service's log, or pass another --model"
    )


async def drive(
    endpoint: Endpoint, plan: LoadPlan, on_answer: Callable[[], object] = lambda: None
) -> tuple[Answer, ...]:
    """Send each request when it is due, regardless of the others, and wait for all answers."""
    since_start_s = stopwatch()

    async def one(request: PlannedRequest) -> Answer:
        answer = await send(endpoint, request, since_start_s)
        on_answer()
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = []
        for request in plan.requests:
            await asyncio.sleep(request.at_s - since_start_s())
            tasks.append(group.create_task(one(request)))
    return tuple(task.result() for task in tasks)


async def closed_loop(endpoint: Endpoint, requests: Sequence[PlannedRequest], clients: int) -> tuple[Answer, ...]:
    """Send all requests, ``clients`` at a time; times count from the first one."""
    since_start_s, waiting = stopwatch(), iter(requests)

    async def work() -> list[Answer]:
        return [await send(endpoint, replace(one, at_s=since_start_s()), since_start_s) for one in waiting]

    found = await asyncio.gather(*(work() for _ in range(clients)))
    return tuple(answer for answers in found for answer in answers)


def stopwatch() -> Callable[[], float]:
    """Returns the seconds since its creation."""
    started_at_s = time.perf_counter()
    return lambda: time.perf_counter() - started_at_s


async def send(
    endpoint: Endpoint,
    request: PlannedRequest,
    since_start_s: Callable[[], float],
    on_text: Callable[[str], object] = lambda _: None,
) -> Answer:
    """Send one request and read its stream to the end; failures are outcomes, not exceptions.

    ``on_text`` gets each event's text.
    """
    stream = _Stream(since_start_s, on_text)
    sent_s, body, detail, retry_after_s = since_start_s(), endpoint.body(request), "", None
    try:
        async with (
            asyncio.timeout(endpoint.timeout_s),
            endpoint.client.stream("POST", request.path, json=body) as response,
        ):
            if response.status_code == httpx.codes.OK:
                async for line in response.aiter_lines():
                    stream.take(line)
                outcome, detail = stream.outcome, stream.detail
            else:
                outcome, detail = f"http_{response.status_code}", (await response.aread()).decode(errors="replace")
                retry_after_s = _seconds(response.headers.get("retry-after"))
    except (TimeoutError, httpx.TimeoutException):
        outcome = "timeout"
    except httpx.TransportError as error:
        outcome = "unreachable" if isinstance(error, httpx.ConnectError) else "disconnected"
        detail = repr(error)
    except (httpx.DecodingError, ValueError, LookupError, TypeError, AttributeError) as error:  # not readable
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
        kind=request.kind,
        slo_class=request.slo_class,
        retry_after_s=retry_after_s,
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


class _Stream:
    """State of one stream of server-sent events."""

    def __init__(self, since_start_s: Callable[[], float], on_text: Callable[[str], object]) -> None:
        self._now_s, self._on_text = since_start_s, on_text
        self.events: list[Event] = []
        self.usage: Usage | None = None
        self.outcome, self.detail = "disconnected", ""
        self.done_s: float | None = None

    def take(self, line: str) -> None:
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
            self._on_text(text or "")


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt=int(usage["prompt_tokens"]),
        output=int(usage["completion_tokens"]),
        cached=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
        accepted=int(details.get("accepted_prediction_tokens") or 0),
        rejected=int(details.get("rejected_prediction_tokens") or 0),
        kept=((usage.get("outrider") or {}).get("slo") or {}).get("kept"),
    )
