"""Probes under the names that others use: Kubernetes' own, SageMaker's ``/ping``, vLLM's ``/load``."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from serve_app.api.service import Service
from serve_app.service_answers import Load

READ = ["GET", "HEAD"]
LIVE = ("/health", "/healthz", "/livez", "/ping")  # whether the process answers; never refused for want of a place
READY = ("/ready", "/readyz")


def probes(
    service: Service, alive: Callable[[], Awaitable[Response]], ready: Callable[[], Awaitable[Response]]
) -> APIRouter:
    """Return the routes. None needs a key: numbers of responses are all they tell."""
    api = APIRouter(redirect_slashes=False)
    for path in LIVE:
        api.add_api_route(path, alive, methods=READ, response_model=None)
    for path in READY:
        api.add_api_route(path, ready, methods=READ, response_model=None)

    @api.api_route("/load", methods=READ)
    async def load() -> Response:
        return JSONResponse(Load(server_load=service.load))

    return api
