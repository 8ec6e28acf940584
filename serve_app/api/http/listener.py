"""The API on a port of its own, without a proxy before it."""

import asyncio
import socket
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contracts.errors import BusyError
from serve_app.api.http.edge import error_response
from serve_app.api.http_errors import answer_for


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and for how many requests at a time: more are refused at once."""

    host: str
    port: int
    max_requests: int


def listen(api: ASGIApp, address: Address) -> "asyncio.Task[None]":
    """Serve an application on the running event loop until the task is cancelled.

    Raises:
        OSError: somebody else listens there. Whoever did and has just died does not count.
    """
    listening = socket.create_server((address.host, address.port), backlog=address.max_requests)
    bounded = Bounded(api, address.max_requests)
    config = uvicorn.Config(bounded, lifespan="off", ws="none", log_config=None, access_log=False)
    return asyncio.create_task(_serve(uvicorn.Server(config), listening))


async def _serve(server: uvicorn.Server, listening: socket.socket) -> None:
    try:
        await server.serve(sockets=[listening])
    finally:
        server.force_exit = True
        await server.shutdown(sockets=[listening])


class Bounded:
    """So many requests at a time; more are refused at once with 429."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it."""
        if self._under_way >= self._most:
            busy = BusyError(f"needs a free place, found all {self._most} of this server's taken")
            await error_response(answer_for(busy))(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
