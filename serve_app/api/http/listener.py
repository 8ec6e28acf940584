"""The API on its own port, without a proxy in front."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from serve_app.api.http.connections import HttpConnections
from serve_app.api.http.protocol import BoundedProtocol

_ACCEPTED_AT_ONCE = 16  # uvloop accepts one connection of a socket per loop iteration, which a flood makes slow


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


class ListenerEndedError(RuntimeError):
    """The listener has ended, though the replica should still be served by it."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process's owner."""
        yield


@dataclass(frozen=True, slots=True)
class Listening:
    """A server on the running event loop. When its task ends, in whatever way, the port is free."""

    address: Address
    server: uvicorn.Server
    task: "asyncio.Task[None]"

    def check(self) -> None:
        if self.task.done():
            where = f"{self.address.host}:{self.address.port}"
            error = None if self.task.cancelled() else self.task.exception()
            raise ListenerEndedError(f"needs a listener at {where}, found that it ended: {error!r}") from error

    async def close(self) -> None:
        """Free the port, then wait for the responses in progress, without a limit as long as their clients read."""
        self.server.should_exit = True
        await asyncio.wait([self.task])


def listen(
    api: ASGIApp,
    address: Address,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    connections: HttpConnections | None = None,
) -> Listening:
    """Serve an application on the running event loop; ``connections`` bounds its connections.

    Raises:
        OSError: another process listens there. A socket left by one that has just ended does not count.
    """
    bound = [socket.create_server((address.host, address.port))]
    bound += [bound[0].dup() for _ in range(_ACCEPTED_AT_ONCE - 1)]
    config = uvicorn.Config(
        api,
        http=partial(protocol, connections=connections or HttpConnections()),  # type: ignore[arg-type]  # called as a class
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # uvicorn would trust anybody on this machine; ``peer_address`` knows whom to trust
    )
    server = _Server(config)

    def free_port(_: object) -> None:
        for each in (*getattr(server, "servers", ()), *bound):
            each.close()

    task = asyncio.create_task(server.serve(sockets=bound))
    task.add_done_callback(free_port)
    return Listening(address, server, task)
