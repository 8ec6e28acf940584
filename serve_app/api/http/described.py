"""``/openapi.json`` and ``/docs``: descriptions of the API."""

import asyncio
import json
from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from serve_app.api.openapi.document import openapi_document
from serve_app.api.openapi.page import CONTENT_SECURITY_POLICY, page_of
from serve_app.api.service import Service
from serve_app.api.tagged_page import TaggedPage

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
        return (await _rendered(current().openapi_json)).response(request)

    @api.api_route("/docs", methods=_READ)
    async def docs(request: Request) -> Response:
        return (await _rendered(current().page)).response(request)

    return api


async def _rendered(page: Any) -> TaggedPage:
    """Get a page from its cached function, in a thread if it has not been generated."""
    rendered: TaggedPage = page() if page.cache_info().currsize else await asyncio.to_thread(page)
    return rendered


class _Descriptions:
    def __init__(self, service: Service) -> None:
        limits = self.limits = service.limits
        keys, reads_need_key = service.gate is not None, service.settings.reads_need_key
        document = cache(lambda: openapi_document(limits, keys=keys, reads_need_key=reads_need_key))
        policy = {"content-security-policy": CONTENT_SECURITY_POLICY}
        self.openapi_json = cache(
            lambda: TaggedPage(json.dumps(document(), ensure_ascii=False).encode(), "application/json")
        )
        self.page = cache(lambda: TaggedPage(page_of(document()).encode(), "text/html; charset=utf-8", policy))
