"""What a browser gets, without one."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html.parser import HTMLParser
from typing import Any, cast

import httpx
import pytest

from actors.messages import CoordinatorReport, DrafterState, DrafterStatus, FleetStatus, LinkReport
from outrider.contracts.errors import FleetUnavailableError
from outrider.tenants.keys import Tenant, parse_keys
from outrider.tenants.quotas import OverQuota, QuotaRequest, RateLeft
from serve_app.api.gate import uncounted
from serve_app.api.http.routes import make_api
from serve_app.api.service import Pass
from serve_app.page.files import read_assets
from serve_app.page.routes import with_page
from serve_app.service_answers import Status
from tests.unit.serve_app.api.asking import error_of, within
from tests.unit.serve_app.api.text_service import TextService

KEY = "sk-0123456789abcdef0123"
KEYS = parse_keys(f"keys: [{{name: alice, key: {KEY}}}]", "keys.yaml")
LINKS = {"drafter-x-0": LinkReport(0.05, 2e7, 2e7)}
FLEET = FleetStatus(
    (DrafterStatus("drafter-x-0", "x", DrafterState.READY, None, 1, 8),),
    (
        CoordinatorReport(
            "a", "ready", 1.0, links={"drafter-x-0": LinkReport(0.05, 2e7, 2e7)}, faults={"pass_faults": 1}
        ),
    ),
)


class Locked:
    """Who has a key may ask for as much as it likes."""

    keys = KEYS

    async def enter(self, tenant: Tenant) -> OverQuota | None:  # noqa: ARG002 (interface)
        return None

    async def ask(self, tenant: Tenant, asked: QuotaRequest) -> Pass | OverQuota:  # noqa: ARG002 (interface)
        return uncounted

    async def left(self, tenant: Tenant) -> Mapping[str, RateLeft]:  # noqa: ARG002 (interface)
        return {}


@dataclass
class Watched(TextService):
    """A service with a fleet, which counts how often it is asked."""

    asked: int = 0
    lost: bool = False
    now_s: float = 1000.0
    answers: list[dict[str, object]] = field(default_factory=list)

    async def status(self) -> Status:
        self.asked += 1
        await asyncio.sleep(0)
        if self.lost:
            raise FleetUnavailableError("the fleet does not answer")
        return cast("Status", {"model": "m", **asdict(FLEET)})


def ask(service: TextService, *paths: str, clock: Any = None, **headers: str) -> list[httpx.Response]:
    """All at once, of one ingress."""

    async def asking() -> list[httpx.Response]:
        page = with_page(make_api(service), service, *(() if clock is None else (clock,)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(page), base_url="http://outrider") as client:
            return list(await asyncio.gather(*(client.get(path, headers=headers) for path in paths)))

    return within(asking())


class References(HTMLParser):
    """What a document loads, and what of it runs or styles without being loaded."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.loaded += [str(named[name]) for name in ("src", "href") if name in named]
        self.inline += [name for name in named if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in named) else []


def test_the_page_loads_its_own_files_and_nothing_else() -> None:
    (index,) = ask(TextService(), "/")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    found = References(index.text)
    files = [reference for reference in found.loaded if not reference.startswith("#")]
    assert found.inline == []
    assert len(files) >= 4
    assert all(answer.status_code == 200 for answer in ask(TextService(), *(f"/{file}" for file in files)))


def test_every_module_that_is_imported_is_there() -> None:
    assets = read_assets()
    modules = {
        name: asset.content.decode() for name, asset in assets.items() if name.endswith(".js") and "/" not in name
    }
    assert "app.js" in modules
    for text in modules.values():
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= modules.keys()


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    for answer in ask(TextService(), "/", "/page/app.js"):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_a_browser_has_already_is_not_sent_again() -> None:
    (first,) = ask(TextService(), "/page/page.css")
    (again,) = ask(TextService(), "/page/page.css", **{"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/page/", "/page/nothing.js", "/page/../routes.py", "/page/%2e%2e/routes.py", "/page/__init__.py"]
)
def test_there_is_nothing_else(path: str) -> None:
    (answer,) = ask(TextService(), f"/page/{path}")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_url")


def test_the_fleet_is_told_with_what_has_happened() -> None:
    service = Watched()
    (answer,) = ask(service, "/page/fleet", clock=lambda: service.now_s)
    view = answer.json()
    assert view["drafters"][0]["name"] == "drafter-x-0"
    assert view["coordinators"][0]["links"] == {"drafter-x-0": {"rtt_s": 0.05, "up_bps": 2e7, "down_bps": 2e7}}
    assert (view["model"], view["at_s"], view["history"]["at_s"]) == ("m", 1000.0, [1000.0])
    (known,) = ask(service, "/page/fleet?after=1000", clock=lambda: service.now_s)
    assert known.json()["history"]["at_s"] == []


def test_many_who_look_ask_the_fleet_once() -> None:
    service = Watched()
    answers = ask(service, *["/page/fleet"] * 20, clock=lambda: service.now_s)
    assert {answer.status_code for answer in answers} == {200}
    assert service.asked == 1


def test_a_fleet_that_is_away_is_said_to_be() -> None:
    (answer,) = ask(Watched(lost=True), "/page/fleet")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_time_is_a_number() -> None:
    (answer,) = ask(Watched(), "/page/fleet?after=yesterday")
    assert (answer.status_code, error_of(answer)["param"]) == (400, "after")


def test_with_keys_the_page_opens_and_its_data_does_not() -> None:
    service = Watched(gate=Locked())
    index, fleet, models = ask(service, "/", "/page/fleet", "/v1/models")
    assert (index.status_code, fleet.status_code, models.status_code) == (200, 401, 401)
    assert service.asked == 0
    (allowed,) = ask(service, "/page/fleet", authorization=f"Bearer {KEY}")
    assert (allowed.status_code, json.loads(allowed.content)["model"]) == (200, "m")
