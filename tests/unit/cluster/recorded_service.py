"""A real HTTP server that answers with what was recorded of a service."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_server import http_server


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; ``stays_open`` keeps the connection open after the body until the client leaves."""

    body: str
    status: int = 200
    stays_open: bool = False


@dataclass
class Service:
    """The server: ``requests`` holds what it was asked, in order."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    client_left: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(respond: Callable[[str, int], Answer]) -> Iterator[Service]:
    """Serve while the block is open; ``respond`` gets the path and how many requests came before."""
    service = Service()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: dict[str, Any]) -> None:
            with lock:
                number = len(service.requests)
                service.requests.append(body)
            answer = respond(self.path, number)
            self.send_response(answer.status)
            self.end_headers()
            self.wfile.write(answer.body.encode())
            self.wfile.flush()
            if answer.stays_open:
                self.rfile.read(1)  # returns when the client closes the connection
                service.client_left.set()

    with http_server(Handler) as service.url:
        yield service


def events(*payloads: object, done: bool = True) -> str:
    """A stream of server-sent events."""
    lines = [f"data: {json.dumps(payload)}\n\n" for payload in payloads]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")
