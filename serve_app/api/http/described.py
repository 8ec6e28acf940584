"""``/openapi.json`` and ``/docs``: the API describes itself."""

import asyncio
import json
from functools import cache
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from serve_app.api.openapi.document import openapi_document
from serve_app.api.openapi.page import CONTENT_SECURITY_POLICY, page_of
from serve_app.api.service import Service

_READ = ["GET", "HEAD"]


def described(service: Service) -> APIRouter:
    """The routes. They need no key: what they tell is what may be asked, not what is.

    Each is written when it is first asked for, beside the event loop, and kept.
    """
    api = APIRouter(redirect_slashes=False)

    @cache
    def document() -> dict[str, Any]:
        return openapi_document(service.limits, keys=service.gate.keys is not None)

    @cache
    def written() -> bytes:
        return json.dumps(document(), ensure_ascii=False).encode()

    @cache
    def page() -> str:
        return page_of(document())

    @api.api_route("/openapi.json", methods=_READ)
    async def openapi() -> Response:
        return Response(await asyncio.to_thread(written), media_type="application/json")

    @api.api_route("/docs", methods=_READ)
    async def docs() -> Response:
        return HTMLResponse(await asyncio.to_thread(page), headers={"content-security-policy": CONTENT_SECURITY_POLICY})

    return api
