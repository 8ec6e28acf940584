"""Asking the API over a ``TextService``, without a server."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
from starlette.types import Message

from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.text_service import MODEL, TEXT, TOKENIZER, TextService

T = TypeVar("T")
JSON = {"content-type": "application/json"}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "Once upon", "max_tokens": 40}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40}
MESSAGE: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "Hello", "max_output_tokens": 40}
ALL_TEXT = str(TOKENIZER.decode(TOKENIZER.encode(TEXT)[:40]))


def within(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, to its end or an error."""

    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


def ask(service: TextService, method: str, path: str, **request: Any) -> httpx.Response:
    """Send one request."""

    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(make_api(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
            return await client.request(method, path, **request)

    return within(once())


def post(service: TextService, path: str, body: object, **headers: str) -> httpx.Response:
    """Send one body of JSON."""
    return ask(service, "POST", path, content=json.dumps(body), headers=JSON | headers)


def events_of(response: httpx.Response) -> list[Any]:
    """The data of each server-sent event; ``[DONE]`` as a text."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = response.text.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event[6:] if event == "data: [DONE]" else json.loads(event[6:]) for event in events]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error a response tells of, which must be in OpenAI's form."""
    error = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert isinstance(error, dict)
    return error


class Connection:
    """One HTTP/1.1 request of a client that can hang up, as an ASGI server shows it to the application."""

    def __init__(self, path: str, body: object) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [
                (b"host", b"outrider"),
                (b"content-type", b"application/json"),
                (b"x-request-id", b"the-request"),
            ],
            "server": ("outrider", 80),
            "client": ("client", 1),
        }
        self.hung_up = asyncio.Event()
        self.sent: list[Message] = []
        self._unread = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive(self) -> Message:
        """The body, then nothing until the client hangs up."""
        if self._unread:
            return self._unread.pop()
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep what is sent."""
        self.sent.append(message)
