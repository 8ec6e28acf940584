"""Sends a drafter's file, but not for ever, and one a connection: a device that was cut off goes on from there."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from aiohttp import web

_LEAST_BYTES_PER_S = 100_000.0
_BESIDE_S = 60.0
_BUFFERED_BYTES = 2**16  # written ahead of a device that reads slowly; by default a file takes 1.6 MiB, so 0.5


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
