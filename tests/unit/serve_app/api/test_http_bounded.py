"""More requests than an ingress takes: refused by the API's own rules, and whoever only reads is served."""

import asyncio
import json
import logging
from dataclasses import replace

import httpx
import pytest

from outrider.contracts.errors import BusyError
from outrider.events import JsonLines
from serve_app.api.http.bounded import Bounded
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import COMPLETION, error_of, post, within
from tests.unit.serve_app.api.text_service import SETTINGS, TextService


def test_what_finds_no_place_is_refused_like_any_other_error() -> None:
    service = TextService(settings=replace(SETTINGS, max_requests=1), trouble_at=0, trouble_with=0)

    async def asked() -> None:
        transport = httpx.ASGITransport(make_api(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
            first = asyncio.create_task(client.post("/v1/completions", json=COMPLETION))
            await service.hanging.wait()
            refused = await client.post("/v1/completions", json=COMPLETION, headers={"x-request-id": "mine"})
            assert refused.status_code == httpx.codes.TOO_MANY_REQUESTS
            assert error_of(refused)["code"] == "busy"
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-request-id"] == "mine"
            for method in ("GET", "HEAD"):
                for path in ("/health", "/ready", "/status", "/metrics", "/v1/models"):
                    assert (await client.request(method, path)).status_code == httpx.codes.OK
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            again = await client.post("/v1/completions", json=COMPLETION)
            assert again.status_code == httpx.codes.OK, "its place is free again"

    within(asked())


def test_a_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service = TextService(settings=replace(SETTINGS, max_requests=0))
    post(service, "/v1/completions", COMPLETION, **{"x-request-id": "mine"})
    lines = [JsonLines().format(record) for record in caplog.records if record.name.startswith("serve_app")]
    (event,) = map(json.loads, lines)
    assert (event["event"], event["request_id"]) == ("request_finished", "mine")
    assert (event["status"], event["code"]) == (429, "busy")


async def nothing(*_: object) -> None:
    """An application that is never asked."""


def taken(bounded: Bounded, account: str, most: int = 2_000) -> int:
    """Places that an account gets until it is refused, and keeps."""
    for number in range(most):
        try:
            bounded.take_place(account)
        except BusyError:
            return number
    return most


def test_an_account_leaves_places_for_others() -> None:
    bounded = Bounded(nothing, most=1_000)
    assert taken(bounded, "flood") == 889, "8/9 of all"
    others = [taken(bounded, f"other {number}", 1) for number in range(20)]
    assert others == [1] * 20, "each new one is let in"
    assert taken(bounded, "flood") == 0
