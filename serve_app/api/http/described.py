"""``/openapi.json`` and ``/docs``: descriptions of the API."""

import asyncio
import json
from functools import cache
from hashlib import blake2b
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from serve_app.api.openapi.document import openapi_document
from serve_app.api.openapi.page import CONTENT_SECURITY_POLICY, page_of
from serve_app.api.service import Service

_READ = ["GET", "HEAD"]


def described(service: Service) -> APIRouter:
    """Return the routes. They need no key, as they show what may be asked and no state.

    Each page is generated when it is first requested, off the event loop, and kept until reloadable settings change.
    """
    api = APIRouter(redirect_slashes=False)
    kept = _Described(service)

    def now() -> _Described:
        nonlocal kept
        if kept.limits is not service.limits:
            kept = _Described(service)
        return kept

    @api.api_route("/openapi.json", methods=_READ)
    async def openapi(request: Request) -> Response:
        return _sent(await _made(now().written), request, {"content-type": "application/json"})

    @api.api_route("/docs", methods=_READ)
    async def docs(request: Request) -> Response:
        headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": CONTENT_SECURITY_POLICY}
        return _sent(await _made(now().page), request, headers)

    return api


async def _made(what: Any) -> tuple[bytes, str]:
    """Get a page from its cached function, in a thread if it has not been generated."""
    made: tuple[bytes, str] = what() if what.cache_info().currsize else await asyncio.to_thread(what)
    return made


class _Described:
    """Descriptions under these limits, in both forms."""

    def __init__(self, service: Service) -> None:
        limits = self.limits = service.limits
        keys, reads_need_key = service.gate.keys is not None, service.settings.reads_need_key
        document = cache(lambda: openapi_document(limits, keys=keys, reads_need_key=reads_need_key))
        self.written = cache(lambda: _tagged(json.dumps(document(), ensure_ascii=False).encode()))
        self.page = cache(lambda: _tagged(page_of(document()).encode()))


def _tagged(content: bytes) -> tuple[bytes, str]:
    return content, f'"{blake2b(content, digest_size=12).hexdigest()}"'


def _sent(written: tuple[bytes, str], request: Request, headers: dict[str, str]) -> Response:
    """Send a page, or 304 if the client's copy is current."""
    content, tag = written
    headers |= {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)
