"""Scripts of pages of other origins."""

from dataclasses import replace

import httpx
import pytest

from outrider.config.reading import parse_config
from outrider.contracts.errors import ConfigError
from serve_app.api.service import ServiceSettings
from tests.unit.serve_app.api.asking import COMPLETION, ask, post
from tests.unit.serve_app.api.test_http_keys import ALICE, CountingGate
from tests.unit.serve_app.api.text_service import SETTINGS, TextService

PAGE, OTHER = "https://my.page:8443", "https://other.page"


def preflight(service: TextService, origin: str = PAGE) -> httpx.Response:
    """What a browser asks before a script's request with a key."""
    headers = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    return ask(service, "OPTIONS", "/v1/completions", headers=headers | {"origin": origin})


def service(*origins: str) -> TextService:
    return TextService(
        settings=replace(SETTINGS, http=replace(SETTINGS.http, cors_origins=origins)), gate=CountingGate()
    )


def test_a_browser_may_ask_beforehand_without_the_key_and_then_with_it() -> None:
    served = service(PAGE)
    before = preflight(served)
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == PAGE
    assert "POST" in before.headers["access-control-allow-methods"]
    assert before.headers["access-control-allow-headers"] == "authorization,content-type"
    answer = post(served, "/v1/completions", COMPLETION, origin=PAGE, authorization=f"Bearer {ALICE}")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "X-Request-Id" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers


def test_a_script_is_shown_errors_too() -> None:
    refused = post(service(PAGE), "/v1/completions", COMPLETION, origin=PAGE)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)


@pytest.mark.parametrize("served", [service(PAGE), service()], ids=["another origin", "off"])
def test_nobody_else_may(served: TextService) -> None:
    assert preflight(served, OTHER).status_code in (400, 405)
    answer = post(served, "/v1/completions", COMPLETION, origin=OTHER, authorization=f"Bearer {ALICE}")
    assert answer.status_code == 200, "a browser keeps it from the script"
    assert "access-control-allow-origin" not in answer.headers


def test_all_origins_may_be_allowed() -> None:
    assert preflight(service("*"), OTHER).headers["access-control-allow-origin"] == "*"


def test_origins_are_configured() -> None:
    config = parse_config("http: {cors_origins: ['https://my.page:8443', '*']}", "test")
    assert ServiceSettings.from_config(config).http.cors_origins == (PAGE, "*")
    assert ServiceSettings.from_config(parse_config("", "test")).http.cors_origins == ()
    for wrong in ("my.page", "https://my.page/", "https://my.page/path", ""):
        with pytest.raises(ConfigError, match=r"http.cors_origins\S* needs an origin such as"):
            parse_config(f"http: {{cors_origins: ['{wrong}']}}", "test")
