"""Sends a planned load over HTTP and records the answers, event by event."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import httpx

from cluster.options import key_headers, own_api_key
from lab.bench.load.plan import COMPLETIONS, PlannedRequest
from lab.bench.load.report import COMPLETED, Answer, Usage
from outrider.contracts.errors import OutriderError

_MAX_DETAIL_CHARS = 300
_WARM_UP = PlannedRequest(0.0, COMPLETIONS, {"prompt": "Hi", "max_tokens": 4})


class ServiceUnusableError(OutriderError):
    """The service cannot be reached, or does not answer a plain request."""


def open_client(url: str, timeout_s: float) -> httpx.AsyncClient:
    """A client with a connection per concurrent request, so that none waits for another."""
    headers = key_headers(own_api_key())
    return httpx.AsyncClient(
        base_url=url, timeout=timeout_s, limits=httpx.Limits(max_connections=None), headers=headers
    )


async def served_model(client: httpx.AsyncClient) -> str:
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
    """A model to query. ``timeout_s``: for a whole answer."""

    client: httpx.AsyncClient
    model: str
    timeout_s: float

    def body(self, request: PlannedRequest) -> dict[str, object]:
        return {"model": self.model, **request.body, "stream": True, "stream_options": {"include_usage": True}}


async def endpoint_of(client: httpx.AsyncClient, model: str, timeout_s: float) -> Endpoint:
    """Warm the service up with one short request."""
    endpoint = Endpoint(client, model, timeout_s)
    answer = await send(endpoint, _WARM_UP, time.perf_counter)
    if answer.outcome != COMPLETED:
        raise ServiceUnusableError(
            f"needs {client.base_url} to complete a short prompt with {model}, found {answer.outcome}: {answer.detail}"
            "; see the service's log, or pass another --model"
        )
    return endpoint


async def drive(
    endpoint: Endpoint,
    requests: Sequence[PlannedRequest],
    on_answer: Callable[[], object] = lambda: None,
    max_concurrency: int | None = None,
) -> tuple[Answer, ...]:
    """Send each request when it is due, at most ``max_concurrency`` at a time, and wait for all answers."""
    since_start_s = stopwatch()
    places = asyncio.Semaphore(max_concurrency) if max_concurrency else nullcontext()

    async def one(request: PlannedRequest) -> Answer:
        async with places:
            answer = await send(endpoint, request, since_start_s)
        on_answer()
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = []
        for request in requests:
            await asyncio.sleep(request.at_s - since_start_s())
            tasks.append(group.create_task(one(request)))
    return tuple(task.result() for task in tasks)


def stopwatch() -> Callable[[], float]:
    started_at_s = time.perf_counter()
    return lambda: time.perf_counter() - started_at_s


async def send(endpoint: Endpoint, request: PlannedRequest, since_start_s: Callable[[], float]) -> Answer:
    """Send one request and read its stream to the end; failures are outcomes, not exceptions."""
    stream = _Stream(since_start_s)
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
        events_s=tuple(stream.events_s),
        usage=stream.usage,
        detail=detail[:_MAX_DETAIL_CHARS],
        kind=request.kind,
        slo_class=request.slo_class,
        retry_after_s=retry_after_s,
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


class _Stream:
    def __init__(self, since_start_s: Callable[[], float]) -> None:
        self._now_s = since_start_s
        self.events_s: list[float] = []
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
        if content.get("usage") is not None:
            self.usage = _usage(content["usage"])
        for choice in content["choices"]:
            text = choice["delta"].get("content") if "delta" in choice else choice["text"]
            if text or "role" not in choice.get("delta", {}):  # a chat's first event may carry the role alone
                self.events_s.append(self._now_s())


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
