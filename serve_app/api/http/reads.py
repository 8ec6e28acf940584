"""What can be read over HTTP: health, readiness, status, metrics and the model's card."""

import time

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from serve_app.api.http_errors import UnknownModelError
from serve_app.api.openai.responses import model_card
from serve_app.api.service import Service

_READ = ["GET", "HEAD"]


def reads(service: Service) -> APIRouter:
    """The routes for GET and HEAD."""
    api = APIRouter(redirect_slashes=False)
    card = model_card(service.limits, created_s=int(time.time()))

    @api.api_route("/health", methods=_READ)
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @api.api_route("/ready", methods=_READ)
    async def ready() -> Response:
        report = await service.ready()
        return JSONResponse({"ready": report.ready, **report.detail}, status_code=200 if report.ready else 503)

    @api.api_route("/status", methods=_READ)
    async def status() -> Response:
        return JSONResponse(await service.status())

    @api.api_route("/metrics", methods=_READ)
    async def metrics() -> Response:
        return Response(service.metrics(), headers={"content-type": CONTENT_TYPE_LATEST})

    @api.api_route("/v1/models", methods=_READ)
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [card]})

    @api.api_route("/v1/models/{model:path}", methods=_READ)
    async def model(model: str) -> Response:
        if model != card["id"]:
            raise UnknownModelError("model", f"model needs one of: {card['id']}; found {model!r}")
        return JSONResponse(card)

    return api
