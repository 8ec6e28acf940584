"""A service on this machine answers to this machine's names alone, whatever a browser was made to believe."""

from dataclasses import replace

import httpx
import pytest

from outrider.config.access import HttpConfig
from outrider.config.reading import parse_config
from serve_app.api.http.routes import make_api
from serve_app.api.service import ServiceSettings
from tests.unit.serve_app.api.asking import COMPLETION, ask, error_of, post
from tests.unit.serve_app.api.listening import answer_to, listening, on_a_loop
from tests.unit.serve_app.api.text_service import SETTINGS, TextService

LOCAL = ServiceSettings.from_config(parse_config("", "test")).http.answers_to
OURS = ("localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "my.name:443")
OTHERS = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2", "[::2]")
MALFORMED = ("", " ", ":8000", "localhost:x", "localhost:80:80", "a b", "localhost@evil.example", "[::1", "[::1]8000")


def local(*names: str) -> TextService:
    assert LOCAL is not None
    return TextService(settings=replace(SETTINGS, http=HttpConfig(allowed_hosts=names)))


@pytest.mark.parametrize("host", OURS)
def test_names_of_this_machine_and_those_configured_are_answered(host: str) -> None:
    assert ask(local("my.name"), "GET", "/health", headers={"host": host}).status_code == httpx.codes.OK


@pytest.mark.parametrize("path", ["/", "/health", "/status", "/v1/models", "/v1/chat/completions"])
@pytest.mark.parametrize("host", OTHERS)
def test_other_names_are_not(host: str, path: str) -> None:
    service = local()
    refused = ask(service, "POST" if "chat" in path else "GET", path, headers={"host": host})
    assert refused.status_code == httpx.codes.MISDIRECTED_REQUEST
    assert error_of(refused)["code"] == "misdirected_request"
    assert service.requests == []


@pytest.mark.parametrize("host", MALFORMED)
def test_what_names_no_host_is_malformed(host: str) -> None:
    for service in (local("*"), TextService()):
        assert error_of(ask(service, "GET", "/health", headers={"host": host}))["code"] == "invalid_host"


def test_elsewhere_and_where_all_are_allowed_any_name_is_answered() -> None:
    for service in (local("*"), TextService()):
        assert ask(service, "GET", "/health", headers={"host": "evil.example"}).status_code == httpx.codes.OK
        assert post(service, "/v1/completions", COMPLETION).status_code == httpx.codes.OK


@pytest.mark.parametrize("host", ["::", "192.0.2.1"])
def test_only_a_service_on_loopback_looks(host: str) -> None:
    assert ServiceSettings.from_config(parse_config(f'http: {{host: "{host}"}}', "test")).http.answers_to is None
    assert LOCAL == ("localhost", "127.0.0.1", "[::1]")
    other = parse_config("http: {host: 127.0.0.5, allowed_hosts: [my.name]}", "test")
    assert ServiceSettings.from_config(other).http.answers_to == (*LOCAL, "127.0.0.5", "my.name")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\nconnection: close\r\n", b"HTTP/1.1 400"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n", b"HTTP/1.1 400"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\nHost: evil.example\r\nconnection: close\r\n", b"HTTP/1.1 400"),
        (b"GET /health HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n", b"HTTP/1.1 421"),
        (b"GET http://localhost/health HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n", b"HTTP/1.1 421"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", b"HTTP/1.1 200"),
        (b"GET /health HTTP/1.0\r\n", b"HTTP/1.1 200"),
    ],
)
def test_over_real_sockets(head: bytes, status: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        async with listening(make_api(local())) as server:
            assert (await answer_to(server, head + b"\r\n")).startswith(status)

    test()
