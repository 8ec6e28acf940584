"""What anybody may read is made once a second, however many read it, and tells strangers little of devices."""

import asyncio
import json
import logging
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from outrider.config.reading import parse_config
from outrider.contracts.errors import ConfigError, FleetUnavailableError
from outrider.events import JsonLines
from serve_app.api.http.routes import make_api
from serve_app.api.shared import Shared
from serve_app.service_answers import Ready, Status
from tests.unit.serve_app.api.asking import ask, within
from tests.unit.serve_app.api.test_http_keys import ALICE, CountingGate
from tests.unit.serve_app.api.text_service import SETTINGS, TextService
from tests.unit.virtual_clock import on_loop

READERS = 1000
WITH_KEY = {"authorization": f"Bearer {ALICE}"}
DRAFTERS: list[dict[str, object]] = [
    {"name": "lab-0", "reason": "no file at /home/alice/model.gguf"},
    {"name": "lab-1", "reason": None, "dialled": {"device": "alice-laptop"}},
]
GATEWAYS: list[dict[str, object]] = [{"name": "gateway-0", "fault": "no file at /home/alice/gateway.pem"}]


@dataclass
class Asked(TextService):
    """Counts how often the cluster is asked."""

    asked: int = 0
    failure: Exception | None = None

    async def ready(self) -> Ready:
        """Yes."""
        await self._ask()
        return {"ready": True}

    async def status(self) -> Status:
        """Two drafters."""
        await self._ask()
        return {"model": "m", "drafters": DRAFTERS, "coordinators": [], "gateways": GATEWAYS}

    async def _ask(self) -> None:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.failure is not None:
            raise self.failure


async def read_often(service: TextService, path: str) -> list[httpx.Response]:
    """By 50 readers at a time, within far less than a second of the answers' age."""
    transport = httpx.ASGITransport(make_api(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
        answers = []
        for _ in range(READERS // 50):
            answers += await asyncio.gather(*(client.get(path) for _ in range(50)))
        return answers


@pytest.mark.parametrize("path", ["/status", "/ready"])
def test_a_thousand_reads_ask_the_cluster_once_a_second(path: str) -> None:
    service = Asked()
    loop_s = asyncio.new_event_loop()
    began_s = loop_s.time()
    answers = within(read_often(service, path))
    took_s = loop_s.time() - began_s
    loop_s.close()
    assert {answer.status_code for answer in answers} == {200}
    assert 1 <= service.asked <= 1 + took_s


def test_errors_are_shared_and_logged_once_as_well(caplog: pytest.LogCaptureFixture) -> None:
    service = Asked(failure=FleetUnavailableError("the fleet does not answer"))
    answers = within(read_often(service, "/status"))
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["retry-after"] for answer in answers} == {"1"}
    lines = [record for record in caplog.records if record.message == "request_failed"]
    assert len(lines) == service.asked < READERS / 10


@on_loop
async def test_an_answer_is_kept_for_a_second_and_who_leaves_takes_it_from_nobody() -> None:
    made = 0

    async def make() -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(5.0)
        return made

    shared = Shared(make)
    leaving, staying = (asyncio.create_task(shared.get()) for _ in range(2))
    await asyncio.sleep(1.0)
    leaving.cancel()
    assert await staying == 1
    assert await shared.get() == 1
    await asyncio.sleep(1.0)
    assert await shared.get() == 2


def test_no_stranger_is_told_why_a_drafter_is_refused() -> None:
    for gate, headers, shown in (
        (CountingGate(), {}, False),
        (CountingGate(), {"authorization": "Bearer sk-nobody-012345"}, False),
        (CountingGate(), WITH_KEY, True),
    ):
        response = ask(Asked(gate=gate), "GET", "/status", headers=headers)
        assert response.status_code == 200
        assert ("alice" in response.text) is shown
        assert [drafter["name"] for drafter in response.json()["drafters"]] == ["lab-0", "lab-1"]
        assert response.json()["drafters"][1]["reason"] is None
    assert ask(Asked(), "GET", "/status").json()["drafters"] == DRAFTERS, "without keys nobody is a stranger"


def test_reads_may_need_a_key() -> None:
    settings = replace(SETTINGS, reads_need_key=True)
    for path, status in (("/status", 401), ("/metrics", 401), ("/ready", 200), ("/health", 200)):
        service = Asked(gate=CountingGate(), settings=settings)
        assert ask(service, "GET", path).status_code == status
        assert ask(service, "GET", path, headers=WITH_KEY).status_code == 200
    with pytest.raises(ConfigError, match=r"auth.reads needs open, or a keys_file, found 'key'"):
        parse_config("auth: {reads: key}", "test")


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_who_has_a_document_already_is_not_sent_it_again(path: str) -> None:
    first = ask(TextService(), "GET", path)
    again = ask(TextService(), "GET", path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert len(first.content) > 10_000


def test_strangers_that_are_refused_have_one_line_in_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def refused() -> None:
        transport = httpx.ASGITransport(make_api(TextService(gate=CountingGate())))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
            for _ in range(200):
                assert (await client.post("/v1/completions", json={})).status_code == 401
            for _ in range(3):
                await client.post("/v1/completions", json={}, headers=WITH_KEY)
            await asyncio.sleep(1.5)

    within(refused())
    lines = [json.loads(JsonLines().format(one)) for one in caplog.records if one.name.startswith("serve_app")]
    events: list[dict[str, Any]] = [line for line in lines if line["event"].startswith("request")]
    strangers = [line for line in events if line.get("code") == "invalid_api_key"]
    counted = [line["count"] for line in events if line["event"] == "requests_refused"]
    assert len(strangers) + sum(counted) == 200
    assert len(strangers) + len(counted) < 40
    assert len([line for line in events if line.get("key") == "alice"]) == 3, "who has a key has a line each"
