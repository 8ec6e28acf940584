"""How a request's body comes in: JSON, of so many bytes, within so many seconds."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import Request

from serve_app.api.http.bounded import Intake
from serve_app.api.http_errors import BodyTooLargeError, BodyTooSlowError, MediaTypeError
from serve_app.api.service import ServiceSettings

_SHORT_BYTES = 2**15  # of a body that is parsed at once: within some milliseconds, whatever is in it
_Read = TypeVar("_Read")


async def read_json_body(request: Request, settings: ServiceSettings, account: str) -> bytes:
    """Read it whole, and take the request's place then.

    Args:
        request: with its ``Intake``.
        settings: how large and how slow it may be.
        account: whose bodies it is counted among; as ``Bodies.coming``.

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
    try:
        with intake.bodies.coming(account) as body:
            async with asyncio.timeout(deadline_s):
                async for part in request.stream():
                    body.add(len(part))
                    content += part
                    if len(content) > most:
                        raise BodyTooLargeError(f"needs a body of at most {most} bytes, found more; shorten the prompt")
    except TimeoutError:
        raise BodyTooSlowError(f"needs the body within {deadline_s:g} s, found {len(content)} bytes then") from None
    intake.take_place(account)
    return bytes(content)


async def parsed(content: bytes, parse: Callable[[bytes], _Read]) -> _Read:
    """Parse a body, a long one in a thread, so that other responses get on between its steps."""
    return parse(content) if len(content) <= _SHORT_BYTES else await asyncio.to_thread(parse, content)
