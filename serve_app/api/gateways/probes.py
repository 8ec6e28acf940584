"""Probes under others' names: Kubernetes' own, SageMaker's ``/ping``, llama.cpp's ``/v1/health``, vLLM's ``/load``."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from serve_app.api.service import Service
from serve_app.service_answers import Load

READ = ["GET", "HEAD"]
PING = "/ping"  # read by SageMaker; some callers of vLLM's, which takes both, post to it
LIVE = (
    "/health",
    "/healthz",
    "/livez",
    "/v1/health",
    PING,
)  # whether the process answers; never refused for want of a place
READY = ("/ready", "/readyz")


def probes(
    service: Service, alive: Callable[[], Awaitable[Response]], ready: Callable[[], Awaitable[Response]]
) -> APIRouter:
    """Return the routes. None needs a key: numbers of responses are all they tell."""
    api = APIRouter(redirect_slashes=False)
    for path in LIVE:
        api.add_api_route(path, alive, methods=READ, response_model=None)
    api.add_api_route(PING, alive, methods=["POST"], response_model=None)
    for path in READY:
        api.add_api_route(path, ready, methods=READ, response_model=None)

    @api.api_route("/load", methods=READ)
    async def load() -> Response:
        return JSONResponse(Load(server_load=service.load))

    return api
