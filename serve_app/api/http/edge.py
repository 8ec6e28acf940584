"""Outermost layer of the HTTP API: gives each request an id, each error an answer, and writes the log line."""

import asyncio
import traceback
import uuid
from collections.abc import Mapping

from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api.api_forms import ErrorWriter
from serve_app.api.http.record import RequestLog, RequestRecord
from serve_app.api.http_errors import ErrorAnswer
from serve_app.api.tracing import TRACEPARENT, RequestTraces

_MAX_REQUEST_ID_CHARS = 128
_REQUEST_ID_CHARS = frozenset(map(chr, range(0x20, 0x7F)))
_NAMED_BY_ANTHROPIC = "/v1/messages"  # its clients read the id from ``request-id``


class Edge:
    """Layers below find the request's ``RequestRecord`` in its state, as ``record``."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        returns_request_id: bool,
        error_bodies: Mapping[str, ErrorWriter],
        traces: RequestTraces | None = None,
    ) -> None:
        """``error_bodies``: by path; other errors than theirs, and of paths below, are in OpenAI's form."""
        self._app, self._traces, self._log, self._error_bodies = app, traces, RequestLog(), error_bodies
        self._returns_request_id = returns_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        record = RequestRecord(_request_id(Headers(scope=scope).get("x-request-id", "")), path)
        own = (write for above, write in self._error_bodies.items() if path == above or path.startswith(f"{above}/"))
        record.error_body = next(own, record.error_body)
        scope.setdefault("state", {})["record"] = record

        traceparent = None
        if self._traces is not None and scope["method"] == "POST":
            traceparent, record.trace = self._traces.begin(Headers(scope=scope), "POST", record.path)
        tagged_send = self._tagging(send, record, traceparent, has_body=scope["method"] != "HEAD")
        try:
            await self._app(scope, receive, tagged_send)
        except ClientDisconnect:
            record.left = True
        except asyncio.CancelledError:
            record.left = True  # Serve cancels a request when its client disconnects
            raise
        except Exception as error:
            answer = record.answer_to(error)
            if record.status is not None:
                raise
            _forget_frames(error)
            await error_response(answer, record)(scope, receive, tagged_send)
        finally:
            if scope["method"] == "POST":
                self._log.ended(record)
            if self._traces is not None and record.trace is not None:
                route = getattr(scope.get("route"), "path", None)
                self._traces.ended(record.trace, route, record)

    def _tagging(self, send: Send, record: RequestRecord, traceparent: str | None, *, has_body: bool) -> Send:
        async def tagged_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message).update(record.headers)
                if self._returns_request_id:
                    MutableHeaders(scope=message)["x-request-id"] = record.request_id
                if record.path.startswith(_NAMED_BY_ANTHROPIC):
                    MutableHeaders(scope=message)["request-id"] = record.request_id
                if traceparent is not None:
                    MutableHeaders(scope=message)[TRACEPARENT] = traceparent
            elif not has_body:
                message = {**message, "body": b""}
            await send(message)

        return tagged_send


def error_response(answer: ErrorAnswer, record: RequestRecord) -> Response:
    """Convert an error's answer to an HTTP response, in the form of the request's API."""
    body = record.error_body(answer, record.request_id)
    return JSONResponse(body, status_code=answer.status, headers=answer.headers)


def _forget_frames(error: BaseException) -> None:
    """Clear the frames that an error and its causes refer to.

    Some thirty frames, many of which refer to the error, form cycles: each refused request left 130 objects for the
    garbage collector, which then stopped everything for half a second after a thousand of them.
    """
    passed: BaseException | None = error
    while passed is not None:
        traceback.clear_frames(passed.__traceback__)
        passed.__traceback__ = None
        passed = passed.__cause__ or passed.__context__


def _request_id(given: str) -> str:
    """The client's id without unprintable and non-ASCII characters, cut to length; a new one if nothing is left."""
    printable = "".join(char for char in given if char in _REQUEST_ID_CHARS)
    return printable.strip()[:_MAX_REQUEST_ID_CHARS] or uuid.uuid4().hex
