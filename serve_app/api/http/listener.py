"""The API on a port of its own, without a proxy before it."""

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

_ACCEPTED_AT_ONCE = 16  # uvloop accepts one connection of a socket per turn of the loop, which a flood makes slow


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


class ListenerEndedError(RuntimeError):
    """Nobody listens any more where somebody should."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to whose process it is."""
        yield


@dataclass(frozen=True, slots=True)
class Listening:
    """A server on the running event loop. However its task ends, the port is free then."""

    address: Address
    server: uvicorn.Server
    task: "asyncio.Task[None]"

    def check(self) -> None:
        """Find out that it has ended.

        Raises:
            ListenerEndedError: it has, whether it failed or was told to.
        """
        if self.task.done():
            where = f"{self.address.host}:{self.address.port}"
            error = None if self.task.cancelled() else self.task.exception()
            raise ListenerEndedError(f"needs a listener at {where}, found that it ended: {error!r}") from error

    async def close(self) -> None:
        """Free the port, and wait for the responses under way, however long they take, if they are read."""
        self.server.should_exit = True
        await asyncio.wait([self.task])


def listen(
    api: ASGIApp,
    address: Address,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    connections: HttpConnections | None = None,
) -> Listening:
    """Serve an application on the running event loop; ``connections`` bound those that there are.

    Raises:
        OSError: somebody else listens there. Whoever did and has just died does not count.
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
        proxy_headers=False,  # uvicorn would believe anybody on this machine; ``peer_address`` knows whom to believe
    )
    server = _Server(config)

    def free_port(_: object) -> None:
        for each in (*getattr(server, "servers", ()), *bound):
            each.close()

    task = asyncio.create_task(server.serve(sockets=bound))
    task.add_done_callback(free_port)
    return Listening(address, server, task)
