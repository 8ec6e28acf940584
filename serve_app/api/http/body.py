"""How a request's body comes in: JSON, of so many bytes, within so many seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from serve_app.api.http.bounded import Intake
from serve_app.api.http_errors import BodyTooLargeError, BodyTooSlowError, MediaTypeError
from serve_app.api.service import ServiceSettings


@asynccontextmanager
async def json_body(request: Request, settings: ServiceSettings, account: str, shared: str) -> AsyncIterator[bytes]:
    """A whole body, whose bytes count until the block is left; from here on the request has its place.

    Args:
        request: with its ``Intake``.
        settings: how large and how slow it may be.
        account: whose place it takes.
        shared: whose bodies it is counted among; as ``Bodies.coming``.

    Raises:
        BusyError: too many bodies are on their way, or all places are taken.
        MediaTypeError: it says that it is something else.
        BodyTooLargeError: it has more bytes than are taken.
        BodyTooSlowError: it takes longer than it may.
    """
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise MediaTypeError(f"needs Content-Type: application/json, found {media_type or 'none'}")
    content, most, deadline_s = bytearray(), settings.max_body_bytes, settings.body_deadline_s
    intake: Intake = request.state.intake
    with intake.bodies.held(shared) as body:
        try:
            with intake.bodies.coming(shared):
                async with asyncio.timeout(deadline_s):
                    async for part in request.stream():
                        body.add(len(part))
                        content += part
                        if len(content) > most:
                            needed = f"a body of at most {most} bytes"
                            raise BodyTooLargeError(f"needs {needed}, found more; shorten the prompt")
        except TimeoutError:
            found = f"{len(content)} bytes then"
            raise BodyTooSlowError(f"needs the body within {deadline_s:g} s, found {found}") from None
        intake.take_place(account)
        yield bytes(content)
