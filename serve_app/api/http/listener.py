"""The API on a port of its own, without a proxy before it."""

import asyncio
import socket
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int


def listen(api: ASGIApp, address: Address) -> "asyncio.Task[None]":
    """Serve an application on the running event loop until the task is cancelled.

    Raises:
        OSError: somebody else listens there. Whoever did and has just died does not count.
    """
    listening = socket.create_server((address.host, address.port))
    config = uvicorn.Config(api, lifespan="off", ws="none", log_config=None, access_log=False)
    return asyncio.create_task(_serve(uvicorn.Server(config), listening))


async def _serve(server: uvicorn.Server, listening: socket.socket) -> None:
    try:
        await server.serve(sockets=[listening])
    finally:
        server.force_exit = True
        await server.shutdown(sockets=[listening])
