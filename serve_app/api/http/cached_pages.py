"""``/ready`` and ``/status``: computed and serialised once a second at most, for any number of clients."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi.responses import JSONResponse, Response

from serve_app.api.http.record import RequestRecord
from serve_app.api.service import Service
from serve_app.api.shared import Shared
from serve_app.service_answers import Status

_TOLD_WITH_A_KEY = "shown to clients with an API key"


class _CachedPage:
    def __init__(self, content: Mapping[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._content, self._status, self._headers = bytes(JSONResponse(content).body), status, headers

    def response(self) -> Response:
        """Make a new response each time, as outer layers add headers to it."""
        return Response(self._content, self._status, self._headers, "application/json")


class CachedPages:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._ready: Shared[_CachedPage] = Shared(lambda: _or_error("/ready", self._make_ready))
        self._status: Shared[tuple[_CachedPage, _CachedPage]] = Shared(self._make_status)

    async def ready(self) -> Response:
        """Whether requests can be served, at most a second old."""
        return (await self._ready.get()).response()

    async def status(self, *, has_key: bool) -> Response:
        """State of the service, at most a second old; without a key the reasons of refused drafters are left out."""
        known, unknown = await self._status.get()
        return (known if has_key else unknown).response()

    async def _make_ready(self) -> _CachedPage:
        answer = await self._service.ready()
        return _CachedPage(answer, 200 if answer["ready"] else 503)

    async def _make_status(self) -> tuple[_CachedPage, _CachedPage]:
        found: list[Status] = []  # stays empty on an error

        async def whole() -> _CachedPage:
            found.append(await self._service.status())
            return _CachedPage(found[0])

        known = await _or_error("/status", whole)
        return known, _CachedPage(_without_reasons(found[0])) if found and self._service.gate is not None else known


async def _or_error(path: str, make: Callable[[], Coroutine[Any, Any, _CachedPage]]) -> _CachedPage:
    """Serialise what ``make`` returns, or the answer to its error, which is logged once."""
    try:
        return await make()
    except Exception as error:  # noqa: BLE001 (any error has an answer)
        answer = RequestRecord("", path).answer_to(error)
        return _CachedPage(answer.body, answer.status, answer.headers)


def _without_reasons(status: Status) -> Status:
    """Leave out whose devices dial in, and why what does not run: reasons may name files and addresses."""
    drafters = [{**_without(drafter, "reason"), "dialled": None} for drafter in status["drafters"]]
    return {**status, "drafters": drafters, "gateways": [_without(each, "fault") for each in status["gateways"]]}


def _without(row: Mapping[str, Any], field: str) -> dict[str, Any]:
    return {**row, field: _TOLD_WITH_A_KEY if row[field] else None}
