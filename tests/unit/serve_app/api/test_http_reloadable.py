"""Settings that change under an API that serves: the next request goes by them, what is under way by the old ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx

from outrider.contracts.slo import SloClass
from serve_app.api.http.routes import make_api
from serve_app.api.openai.fields.lengths import CLAMPED_HEADER
from tests.unit.serve_app.api.asking import COMPLETION, within
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, SETTINGS, TextService

PAGE = "https://my.page"
NEW = SloClass("brand_new", 3.0)


@asynccontextmanager
async def client_of(service: TextService) -> AsyncIterator[httpx.AsyncClient]:
    """Of one API, which stays the same."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(make_api(service)), base_url="http://outrider"
    ) as client:
        yield client


def test_the_next_request_goes_by_them() -> None:
    async def run() -> None:
        service = TextService()
        asked = COMPLETION | {"outrider": {"slo_class": NEW.name}}
        async with client_of(service) as client:
            assert (await client.post("/v1/completions", json=asked)).status_code == 400
            assert NEW.name not in (await client.get("/openapi.json")).text
            service.limits = replace(LIMITS, slo_classes=(*LIMITS.slo_classes, NEW), max_output_tokens=40, k_max=8)
            service.settings = replace(SETTINGS, max_body_bytes=200)
            assert (await client.post("/v1/completions", json=asked)).status_code == 200
            assert service.requests[-1].slo == NEW
            clamped = await client.post("/v1/completions", json=COMPLETION | {"max_tokens": 41})
            assert clamped.headers[CLAMPED_HEADER] == "40"
            long = await client.post("/v1/completions", json=COMPLETION | {"prompt": "long " * 100})
            assert long.status_code == 413
            for path in ("/v1/models", f"/v1/models/{MODEL}"):
                answer = (await client.get(path)).json()
                card = answer["data"][0] if "data" in answer else answer
                assert card["outrider"]["max_window"] == 8
                assert NEW.name in card["outrider"]["slo_classes"]
            assert NEW.name in (await client.get("/openapi.json")).text
            assert NEW.name in (await client.get("/docs")).text

    within(run())


def test_other_pages_may_ask_from_then_on_and_until_then() -> None:
    async def run() -> None:
        service = TextService()
        async with client_of(service) as client:

            async def allowed() -> str | None:
                answer = await client.post("/v1/completions", json=COMPLETION, headers={"origin": PAGE})
                assert answer.status_code == 200
                return dict(answer.headers).get("access-control-allow-origin")

            assert await allowed() is None
            service.settings = replace(SETTINGS, http=replace(SETTINGS.http, cors_origins=(PAGE,)))
            assert await allowed() == PAGE
            service.settings = replace(SETTINGS, http=replace(SETTINGS.http, cors_origins=("https://other.page",)))
            assert await allowed() is None

    within(run())


def test_a_response_keeps_its_deadlines_and_its_comments() -> None:
    async def run() -> None:
        service = TextService(settings=replace(SETTINGS, http=replace(SETTINGS.http, keep_alive_s=0.01)), trouble_at=6)
        async with client_of(service) as client:
            asking = asyncio.create_task(client.post("/v1/completions", json=COMPLETION | {"stream": True}))
            await service.hanging.wait()
            service.settings = replace(SETTINGS, next_chunk_deadline_s=1e-3, first_chunk_deadline_s=1e-3)
            late = await client.post("/v1/completions", json=COMPLETION)
            assert late.status_code == 504
            assert not asking.done(), "it has other deadlines"
            asking.cancel()

    within(run())
