"""The outermost layer of the HTTP API, and how an error is told to the client and the log."""

import logging
import uuid

from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.errors import ErrorAnswer, answer_for

_MAX_REQUEST_ID_CHARS = 128
_REQUEST_ID_CHARS = frozenset(map(chr, range(0x20, 0x7F)))

log = logging.getLogger(__name__)


class Edge:
    """Outermost layer: gives each request its id, and every error an answer."""

    def __init__(self, app: ASGIApp, *, returns_request_id: bool) -> None:
        self._app = app
        self._returns_request_id = returns_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id", ""))
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def tagged_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._returns_request_id:
                    MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, tagged_send)
        except ClientDisconnect:
            log.debug("request %s: the client left before it was read", request_id)
        except Exception as error:
            if started:
                raise
            await error_response(told(error, request_id))(scope, receive, tagged_send)


def told(error: Exception, request_id: str) -> ErrorAnswer:
    """The answer to an error; what the client did not cause is logged."""
    answer = answer_for(error)
    if answer.status >= 500:
        log.error("request %s failed", request_id, exc_info=error)
    return answer


def error_response(answer: ErrorAnswer) -> Response:
    """The answer as an HTTP response."""
    return JSONResponse(answer.body, status_code=answer.status, headers=answer.headers)


def _request_id(given: str) -> str:
    """The client's id, less what is no printable ASCII and what is too long; a new one if nothing is left."""
    printable = "".join(char for char in given if char in _REQUEST_ID_CHARS)
    return printable.strip()[:_MAX_REQUEST_ID_CHARS] or uuid.uuid4().hex
