"""CORS: which other origins' scripts may call the API. Off unless origins are configured."""

from collections.abc import Callable, Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_EXPOSED = (
    "X-Request-Id",
    "Retry-After",
    "X-Outrider-Max-Tokens",
)  # response headers, beside those that every script may read
_REMEMBERED_S = 600  # browsers cache the answer to a preflight


def allow_cors(api: FastAPI, origins: Callable[[], Sequence[str]]) -> None:
    """Add CORS outside all other layers: preflights have no key, and without CORS headers scripts cannot read errors.

    Cookies are not allowed: there are none. A key travels in a header, which the page's script has to know.
    """
    api.add_middleware(_Cors, origins=origins)


class _Cors:
    """Applies the origins configured when a request arrives."""

    def __init__(self, app: ASGIApp, *, origins: Callable[[], Sequence[str]]) -> None:
        self._app, self._origins = app, origins
        self._allowed: Sequence[str] = ()
        self._layer = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
