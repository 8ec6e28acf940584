"""How many requests an ingress works on at a time, whoever brings them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contracts.errors import BusyError

_READS = frozenset({"GET", "HEAD"})


class Bounded:
    """So many requests at a time; more are refused at once. Reads are cheap and tell how it goes: they always pass."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self._app, self._most = app, most
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it.

        Raises:
            BusyError: all places are taken.
        """
        if scope["type"] != "http" or scope["method"] in _READS:
            await self._app(scope, receive, send)
            return
        if self._under_way >= self._most:
            raise BusyError(f"needs a free place, found all {self._most} of this server's taken")
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
