"""Pages of other origins: what a browser lets their scripts ask. Off unless origins are configured."""

from collections.abc import Callable, Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_EXPOSED = ("X-Request-Id", "Retry-After")  # of a response's headers, beside those that every script may read
_REMEMBERED_S = 600  # by browsers


def allow_cors(api: FastAPI, origins: Callable[[], Sequence[str]]) -> None:
    """Let them ask; outside all other layers, as a browser asks beforehand without a key, and shows no error otherwise.

    Cookies are not allowed: there are none. A key travels in a header, which the page's script has to know.
    """
    api.add_middleware(_Cors, origins=origins)


class _Cors:
    """Of the origins there are when a request comes."""

    def __init__(self, app: ASGIApp, *, origins: Callable[[], Sequence[str]]) -> None:
        self._app, self._origins = app, origins
        self._allowed: Sequence[str] = ()
        self._layer = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it."""
        if (origins := self._origins()) != self._allowed:
            self._allowed, self._layer = origins, self._allowing(origins) if origins else self._app
        await self._layer(scope, receive, send)

    def _allowing(self, origins: Sequence[str]) -> ASGIApp:
        return CORSMiddleware(
            self._app,
            allow_origins=list(origins),
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED),
            max_age=_REMEMBERED_S,
        )
