"""Which names a service on this machine answers to, so that no web page reaches it by a name of its own.

A page may have its name resolve to 127.0.0.1 (DNS rebinding). To a browser it and the service are of one origin then:
it may ask anything and read the answers. The name in ``Host`` tells them apart. Pages of other origins need no check
here: what makes anything wants JSON, for which a browser asks first (``cors``), and what is read they are not shown.
"""

import re
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.api.http_errors import HostError, MisdirectedError

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@,\\\[\]]+)(?::[0-9]*)?")  # and its port


class Hosts:
    """Requests for the names that are allowed when they come; ``None``: for any."""

    def __init__(self, app: ASGIApp, *, allowed: Callable[[], Sequence[str] | None]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it.

        Raises:
            HostError: it has no ``Host``, several or a malformed one (RFC 9112, section 3.2).
            MisdirectedError: it is meant for another host.
        """
        if scope["type"] == "http":
            host = _host(scope)
            allowed = self._allowed()
            if allowed is not None and host is not None and host not in allowed and "*" not in allowed:
                needed = f"needs a host of this service ({', '.join(allowed)})"
                raise MisdirectedError(f"{needed}, found {host:.100}; http.allowed_hosts adds others")
        await self._app(scope, receive, send)


def _host(scope: Scope) -> str | None:
    """Without its port, in lower case; None where HTTP/1.0 names none."""
    fields = [value for name, value in scope["headers"] if name == b"host"]
    if not fields and scope.get("http_version") == "1.0":
        return None
    if len(fields) != 1:
        raise HostError(f"needs one Host field, found {len(fields)}")
    host = _HOST.fullmatch(fields[0].decode("latin-1").strip().lower())
    if host is None:
        raise HostError(f"needs a Host field such as 127.0.0.1:8000, found {fields[0][:100]!r}")
    return host[1].removesuffix(".")
