"""Pages of other origins: what a browser lets their scripts ask. Off unless origins are configured."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

_TOLD = ("X-Request-Id", "Retry-After")  # of a response's headers, beside those that every script may read
_REMEMBERED_S = 600  # by browsers


def allow_cors(api: FastAPI, origins: Sequence[str]) -> None:
    """Let them ask; outside all other layers, as a browser asks beforehand without a key, and shows no error otherwise.

    Cookies are not allowed: there are none. A key travels in a header, which the page's script has to know.
    """
    api.add_middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "HEAD", "POST"],
        allow_headers=["*"],
        expose_headers=list(_TOLD),
        max_age=_REMEMBERED_S,
    )
