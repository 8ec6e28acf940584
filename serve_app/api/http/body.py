"""Reading of a request's body: JSON, bounded in bytes and seconds."""

import asyncio
import codecs
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from serve_app.api.http.bounded import Intake
from serve_app.api.http_errors import BodyTooLargeError, BodyTooSlowError, MalformedBodyError, MediaTypeError
from serve_app.api.service import ServiceSettings

_UNPACKED_BYTES = 64 * 2**10  # at a time
_MEMBERS = 16  # each costs as much as many bytes


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
        MediaTypeError: the content type is not JSON, or the content is encoded otherwise than by gzip.
        MalformedBodyError: it is no gzip.
        BodyTooLargeError: the body exceeds the size limit.
        BodyTooSlowError: the body exceeds the time limit.
    """
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise MediaTypeError(f"needs Content-Type: application/json, found {media_type or 'none'}")
    encoding = ", ".join(request.headers.getlist("content-encoding") or ["identity"]).strip().lower()
    if encoding not in {"identity", "gzip", "x-gzip"}:
        raise MediaTypeError(f"needs Content-Encoding: gzip, or none, found {encoding:.100}")
    content, most, deadline_s = bytearray(), settings.max_body_bytes, settings.body_deadline_s
    intake: Intake = request.state.intake
    with intake.bodies.held(shared) as count:
        try:
            with intake.bodies.coming(shared):
                async with asyncio.timeout(deadline_s):
                    parts = request.stream() if encoding == "identity" else _unpacked(request.stream(), most)
                    async for part in parts:
                        count(len(part))
                        content += part
                        if len(content) > most:
                            needed = f"a body of at most {most} bytes"
                            raise BodyTooLargeError(f"needs {needed}, found more; shorten the prompt")
        except TimeoutError:
            found = f"{len(content)} bytes then"
            raise BodyTooSlowError(f"needs the body within {deadline_s:g} s, found {found}") from None
        intake.take_place(account)
        yield bytes(content.removeprefix(codecs.BOM_UTF8))


async def _unpacked(packed: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Unpack gzip piece by piece, so that whoever counts the pieces bounds what is unpacked.

    Raises:
        BodyTooLargeError: it has more than ``most`` bytes itself: names and empty blocks unpack to nothing.
        MalformedBodyError: it is no gzip, has too many members, or ends too early.
    """
    unpack, members, came = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), 1, 0
    try:
        async for part in packed:
            rest, came = part, came + len(part)
            if came > most:
                raise BodyTooLargeError(f"needs a body in gzip of at most {most} bytes, found more; send it as it is")
            while rest:
                if unpack.eof:  # another member (RFC 1952, section 2.2)
                    members += 1
                    if members > _MEMBERS:
                        raise MalformedBodyError(f"needs a body in gzip of at most {_MEMBERS} members, found more")
                    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                yield unpack.decompress(rest, _UNPACKED_BYTES)
                rest = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
                await asyncio.sleep(0)
    except zlib.error as error:
        raise MalformedBodyError(f"needs a body in gzip, as Content-Encoding says, found: {error}") from error
    if not unpack.eof:
        raise MalformedBodyError("needs a whole body in gzip, found its beginning")
