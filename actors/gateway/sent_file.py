"""Sends a drafter's file, but not for ever, and one a connection: a device that was cut off goes on from there."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from actors.gateway.identities import DeviceIdentity

_LEAST_BYTES_PER_S = 100_000.0
_BESIDE_S = 60.0
_MOST_OF_ONE = 16  # sent at once to one identity: as many devices as it may be
_MOST_SHARED, _MOST = 64, 256  # sent at once; from the first on an identity is sent one
_BUFFERED_BYTES = 2**16  # written ahead of a device that reads slowly; by default a file takes 1.6 MiB, so 0.5


class FilesSent:
    """Which files are sent at present, and to whom. Each takes half a MiB."""

    def __init__(self) -> None:
        self._sending = dict[asyncio.Transport, DeviceIdentity]()

    def may_be_more_to(self, identity: DeviceIdentity) -> bool:
        to_it = sum(other.name == identity.name for other in self._sending.values())
        most_to_it = 1 if len(self._sending) >= _MOST_SHARED else _MOST_OF_ONE
        return to_it < most_to_it and len(self._sending) < _MOST

    @contextmanager
    def noted(self, request: web.Request, identity: DeviceIdentity) -> Iterator[None]:
        if (transport := request.transport) is None:
            raise ConnectionResetError("it has left")
        self._sending[transport] = identity
        try:
            yield
        finally:
            del self._sending[transport]

    def cut_off(self, is_revoked: Callable[[DeviceIdentity], bool]) -> None:
        for transport, identity in tuple(self._sending.items()):
            if is_revoked(identity):
                transport.abort()


class SentFile(web.FileResponse):
    def __init__(self, path: Path, size_bytes: int, sent: Callable[[], AbstractContextManager[None]]) -> None:
        """``sent`` is entered while it is sent."""
        super().__init__(path, _BUFFERED_BYTES, headers={"Content-Type": "application/octet-stream"})
        self._within_s, self._sent = _BESIDE_S + size_bytes / _LEAST_BYTES_PER_S, sent

    async def prepare(self, request: web.BaseRequest) -> Any:
        if request.transport is not None:
            request.transport.set_write_buffer_limits(_BUFFERED_BYTES)
        try:
            with self._sent():
                async with asyncio.timeout(self._within_s):
                    return await super().prepare(request)
        except (TimeoutError, AttributeError) as error:  # the latter of asyncio, where the device has left
            raise ConnectionAbortedError("it is not read, or too slowly") from error


async def one_request_each(_: web.Request, response: web.StreamResponse) -> None:
    """Close a connection after a request: whose it is was proved when it was opened."""
    response.force_close()
    response.headers.setdefault("Connection", "close")
