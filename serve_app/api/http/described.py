"""``/openapi.json`` and ``/docs``: the API describes itself."""

import json

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from serve_app.api.openapi.document import openapi_document
from serve_app.api.openapi.page import CONTENT_SECURITY_POLICY, page_of
from serve_app.api.service import Service

_READ = ["GET", "HEAD"]


def described(service: Service) -> APIRouter:
    """The routes. They need no key: what they tell is what may be asked, not what is."""
    api = APIRouter(redirect_slashes=False)
    document = openapi_document(service.limits, keys=service.gate.keys is not None)
    written = json.dumps(document, ensure_ascii=False).encode()
    page = page_of(document)

    @api.api_route("/openapi.json", methods=_READ)
    async def openapi() -> Response:
        return Response(written, media_type="application/json")

    @api.api_route("/docs", methods=_READ)
    async def docs() -> Response:
        return HTMLResponse(page, headers={"content-security-policy": CONTENT_SECURITY_POLICY})

    return api
