"""Check of the ``Host`` header, so that no web page reaches a local service through a name of its own.

A page can have its name resolve to 127.0.0.1 (DNS rebinding). For the browser, page and service are then of one origin,
so it may send anything and read the answers. The name in ``Host`` tells them apart. Pages of other origins need no
check here: requests with effects need JSON, for which a browser asks first (``cors``), and answers stay hidden.
"""

import re
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.api.http_errors import HostError, MisdirectedError

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@,\\\[\]]+)(?::[0-9]*)?")  # with its port


class Hosts:
    """Admits requests for the names allowed when they arrive; ``None``: for any name."""

    def __init__(self, app: ASGIApp, *, allowed: Callable[[], Sequence[str] | None]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request.

        Raises:
            HostError: ``Host`` is missing, repeated or malformed (RFC 9112, section 3.2).
            MisdirectedError: the request is for another host.
        """
        if scope["type"] == "http":
            host = _host(scope)
            allowed = self._allowed()
            if allowed is not None and host is not None and host not in allowed and "*" not in allowed:
                needed = f"needs a host of this service ({', '.join(allowed)})"
                raise MisdirectedError(f"{needed}, found {host:.100}; http.allowed_hosts adds others")
        await self._app(scope, receive, send)


def _host(scope: Scope) -> str | None:
    """The host without its port, in lower case; None if HTTP/1.0 names none."""
    fields = [value for name, value in scope["headers"] if name == b"host"]
    if not fields and scope.get("http_version") == "1.0":
        return None
    if len(fields) != 1:
        raise HostError(f"needs one Host field, found {len(fields)}")
    host = _HOST.fullmatch(fields[0].decode("latin-1").strip().lower())
    if host is None:
        raise HostError(f"needs a Host field such as 127.0.0.1:8000, found {fields[0][:100]!r}")
    return host[1].removesuffix(".")
