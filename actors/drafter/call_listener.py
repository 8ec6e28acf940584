"""Where coordinators call a drafter actor without Ray: frames of calls and replies on TCP streams (``edge.server``)."""

import asyncio
import os

from actors.proved_streams import SECRET_BYTES, StreamPlace, StreamProofs, ray_encrypts
from edge.host import DrafterHost
from edge.server import HostServer
from outrider.contracts.errors import MessageError, OutriderError

_MOST_STREAMS, _MOST_UNPROVED = 256, 32


class CallListener:
    """All methods run on the event loop of the host."""

    def __init__(self, host: DrafterHost, address: str) -> None:
        """Listen nowhere yet. ``address`` is this node's, as other nodes reach it."""
        self._answers, self._address = HostServer(host, _MOST_STREAMS), address
        self._secret = os.urandom(SECRET_BYTES)
        self._proofs = StreamProofs(self._secret, _MOST_UNPROVED)
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()

    async def place(self) -> StreamPlace:
        """Return where this process listens, from the first call on.

        Raises:
            OutriderError: Ray's processes speak TLS to each other, and a plain stream would lower that.
            OSError: nobody can listen at this node's address.
        """
        if ray_encrypts():
            raise OutriderError("needs Ray without TLS; calls go over Ray")
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._serve, self._address, 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return StreamPlace(host, port, self._secret)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._proofs.accept(reader, writer)
        except (MessageError, OSError, asyncio.IncompleteReadError):
            writer.transport.abort()  # strangers must not fill the log
            return
        await self._answers.serve(reader, writer)
