"""``/openapi.json`` and ``/docs``: the API describes itself."""

import asyncio
import json
from functools import cache

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from serve_app.api.openapi.document import openapi_document
from serve_app.api.openapi.page import CONTENT_SECURITY_POLICY, page_of
from serve_app.api.service import RequestLimits, Service

_READ = ["GET", "HEAD"]


def described(service: Service) -> APIRouter:
    """The routes. They need no key: what they tell is what may be asked, not what is.

    Each is written when it is first asked for, beside the event loop, and kept until light settings change.
    """
    api = APIRouter(redirect_slashes=False)
    kept = _Described(service.limits, keys=service.gate.keys is not None)

    def now() -> _Described:
        nonlocal kept
        if kept.limits is not service.limits:
            kept = _Described(service.limits, keys=service.gate.keys is not None)
        return kept

    @api.api_route("/openapi.json", methods=_READ)
    async def openapi() -> Response:
        return Response(await asyncio.to_thread(now().written), media_type="application/json")

    @api.api_route("/docs", methods=_READ)
    async def docs() -> Response:
        page = await asyncio.to_thread(now().page)
        return HTMLResponse(page, headers={"content-security-policy": CONTENT_SECURITY_POLICY})

    return api


class _Described:
    """What these limits allow, in both forms."""

    def __init__(self, limits: RequestLimits, *, keys: bool) -> None:
        self.limits = limits
        document = cache(lambda: openapi_document(limits, keys=keys))
        self.written = cache(lambda: json.dumps(document(), ensure_ascii=False).encode())
        self.page = cache(lambda: page_of(document()))
