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


def docs_routes(service: Service) -> APIRouter:
    """Return the routes. They need no key, as they show what may be asked and no state.

    Each page is generated when it is first requested, off the event loop, and kept until reloadable settings change.
    """
    api = APIRouter(redirect_slashes=False)
    kept = _Descriptions(service)

    def current() -> _Descriptions:
        nonlocal kept
        if kept.limits is not service.limits:
            kept = _Descriptions(service)
        return kept

    @api.api_route("/openapi.json", methods=_READ)
    async def openapi(request: Request) -> Response:
        return _respond(await _rendered(current().openapi_json), request, {"content-type": "application/json"})

    @api.api_route("/docs", methods=_READ)
    async def docs(request: Request) -> Response:
        headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": CONTENT_SECURITY_POLICY}
        return _respond(await _rendered(current().page), request, headers)

    return api


async def _rendered(page: Any) -> tuple[bytes, str]:
    """Get a page from its cached function, in a thread if it has not been generated."""
    rendered: tuple[bytes, str] = page() if page.cache_info().currsize else await asyncio.to_thread(page)
    return rendered


class _Descriptions:
    """The API under these limits, as a document and as a page."""

    def __init__(self, service: Service) -> None:
        limits = self.limits = service.limits
        keys, reads_need_key = service.gate is not None, service.settings.reads_need_key
        document = cache(lambda: openapi_document(limits, keys=keys, reads_need_key=reads_need_key))
        self.openapi_json = cache(lambda: _tagged(json.dumps(document(), ensure_ascii=False).encode()))
        self.page = cache(lambda: _tagged(page_of(document()).encode()))


def _tagged(content: bytes) -> tuple[bytes, str]:
    return content, f'"{blake2b(content, digest_size=12).hexdigest()}"'


def _respond(page: tuple[bytes, str], request: Request, headers: dict[str, str]) -> Response:
    """Send a page, or 304 if the client's copy is current."""
    content, tag = page
    headers |= {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)
