"""Defines the page's routes: ``/``, files below ``/page/``, and the status it polls, which needs the API's key."""

import time
from collections.abc import Callable, Mapping

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import TypeAdapter

from actors.messages import FleetStatus
from outrider.contracts.errors import ParameterError
from serve_app.api.gate import tenant_of
from serve_app.api.http_errors import UnknownPathError
from serve_app.api.service import Service
from serve_app.api.shared import Shared
from serve_app.api.tagged_page import TaggedPage
from serve_app.page.files import INDEX, read_assets
from serve_app.page.history import History
from serve_app.service_answers import Status

_READ = ["GET", "HEAD"]
_STATUS = TypeAdapter(FleetStatus)


def with_page(api: FastAPI, service: Service, clock: Callable[[], float] = time.time) -> FastAPI:
    """Add the page to ``api``, at its root, and return ``api``. ``clock`` returns Unix time."""
    api.include_router(_page(service, clock))
    return api


def _page(service: Service, clock: Callable[[], float]) -> APIRouter:
    router, assets = APIRouter(redirect_slashes=False, include_in_schema=False), read_assets()
    history = History()

    async def look() -> tuple[Status, float]:
        seen, now_s = await service.status(), clock()
        history.looked(_STATUS.validate_python(seen), now_s)
        return seen, now_s

    seen = Shared(look)  # pages share a read a second; while none polls, nothing is read

    @router.api_route("/", methods=_READ)
    async def index(request: Request) -> Response:
        return _asset(assets, INDEX, request)

    @router.api_route("/page/fleet", methods=_READ)
    async def fleet(request: Request) -> Response:
        """Return status and history, to clients with a valid key; ``after``: time of the last sample they have."""
        tenant_of(service.gate, request.headers)
        after_s, (status, at_s) = _after_s(request), await seen.get()
        content = {**status, "at_s": at_s, "history": history.columns(after_s)}
        return JSONResponse(content, headers={"cache-control": "no-store"})

    @router.api_route("/page/{name:path}", methods=_READ)
    async def asset(request: Request, name: str) -> Response:
        return _asset(assets, name, request)

    return router


def _asset(assets: Mapping[str, TaggedPage], name: str, request: Request) -> Response:
    found = assets.get(name)
    if found is None:
        raise UnknownPathError(f"needs a URL of this API, found {request.method} {request.url.path:.200}")
    return found.response(request)


def _after_s(request: Request) -> float:
    given = request.query_params.get("after", "0")
    try:
        return float(given)
    except ValueError:
        raise ParameterError("after", "a Unix time in seconds", given[:40]) from None
