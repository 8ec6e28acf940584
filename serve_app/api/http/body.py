"""Reading of a request's body: JSON, bounded in bytes and seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from serve_app.api.http.bounded import Intake
from serve_app.api.http_errors import BodyTooLargeError, BodyTooSlowError, MediaTypeError
from serve_app.api.service import ServiceSettings


@asynccontextmanager
async def json_body(request: Request, settings: ServiceSettings, account: str, shared: str) -> AsyncIterator[bytes]:
    """Read a body; its bytes count until the block ends. Once it is read, the request takes its place.

    Args:
        request: with its ``Intake``.
        settings: limits of size and time.
        account: charged for the place.
        shared: account charged for the body; as in ``Bodies.coming``.

    Raises:
        BusyError: too many bodies are arriving, or all places are taken.
        MediaTypeError: the content type is not JSON.
        BodyTooLargeError: the body exceeds the size limit.
        BodyTooSlowError: the body exceeds the time limit.
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
