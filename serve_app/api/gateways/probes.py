"""Probes under others' names: Kubernetes' own, SageMaker's ``/ping``, llama.cpp's ``/v1/health``, vLLM's ``/load``."""

from collections.abc import Awaitable, Callable, Iterable

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from outrider.contracts.verifying import KvUsage
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


WAITING, RUNNING, KV_USAGE = "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"


def fullest(usages: Iterable[KvUsage | None]) -> float | None:
    """Share of KV that responses hold at the verifier with least room, 0 to 1; None if none has told."""
    shares = [usage.used_blocks / usage.total_blocks for usage in usages if usage is not None and usage.total_blocks]
    return max(shares, default=None)


def engine_page(model: str, *, waiting: int, running: int, kv_usage: float | None) -> bytes:
    """The gauges in Prometheus's text format, labelled with the served model's name."""
    registry = CollectorRegistry()
    for name, about, value in (
        (WAITING, "Responses of this ingress that have no token yet.", waiting),
        (RUNNING, "Responses of this ingress that have begun.", running),
        (KV_USAGE, "KV that responses hold at the fullest verifier; 1 is all.", kv_usage),
    ):
        if value is not None:
            Gauge(name, about, ["model_name"], registry=registry).labels(model).set(value)
    return generate_latest(registry)
