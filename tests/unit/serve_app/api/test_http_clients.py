"""HTTP as RFC 9110 and 9112 have it, by real sockets and by curl: the whole API behind a real listener."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from serve_app.api.http.listener import Listening
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, COMPLETION
from tests.unit.serve_app.api.listening import HOST, answer_to, listening, on_a_loop, url_of
from tests.unit.serve_app.api.test_http_keys import CountingGate
from tests.unit.serve_app.api.text_service import TextService

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON = b"content-type: application/json\r\n"
OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
READS = (
    "/health",
    "/ping",
    "/ready",
    "/load",
    "/version",
    "/status",
    "/metrics",
    "/v1/models",
    "/openapi.json",
    "/docs",
)
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@asynccontextmanager
async def api(**fields: Any) -> AsyncIterator[Listening]:
    async with listening(make_api(TextService(**fields))) as server:
        yield server


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    on_a_loop(test)()


def posted(path: str, body: object, head: bytes = b"", version: bytes = b"1.1", *, close: bool = True) -> bytes:
    """A request with a content length."""
    content = json.dumps(body).encode()
    head += b"connection: close\r\n" if close and b"connection:" not in head else b""
    return (
        b"POST %b HTTP/%b\r\nhost: localhost\r\n" % (path.encode(), version)
        + JSON
        + head
        + b"content-length: %d\r\n\r\n" % len(content)
        + content
    )


def split(answer: bytes) -> tuple[bytes, bytes]:
    """Head in lower case, and body, whose chunks are put together."""
    head, _, body = answer.partition(b"\r\n\r\n")
    head = head.lower()
    if b"transfer-encoding: chunked" not in head:
        return head, body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return head, whole


def said(answer: bytes) -> str:
    """The text of a chat or completion, whole or streamed; interim responses may come first (RFC 9110, 15.2)."""
    while answer.startswith(CONTINUE):
        answer = answer.removeprefix(CONTINUE)
    head, body = split(answer)
    assert head.startswith((b"http/1.1 200", b"http/1.0 200")), answer[:200]
    if b"text/event-stream" in head:
        assert body.endswith(b"data: [DONE]\n\n")
        events = [json.loads(event[6:]) for event in body.decode().split("\n\n") if event.startswith("data: {")]
    else:
        events = [json.loads(body)]
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(_text_of(choice) for choice in choices)


def _text_of(choice: dict[str, Any]) -> str:
    spoken = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
    return spoken.get("content") or ""


@pytest.mark.parametrize("body", [COMPLETION, COMPLETION | {"stream": True}], ids=["whole", "streamed"])
@pytest.mark.parametrize("size", [3, 100_000], ids=["in small parts", "at once"])
def test_a_jvm_client_that_offers_http_2_keeps_its_body(body: dict[str, Any], size: int) -> None:
    """As java.net.http sends it; the answer is in HTTP/1.1 (RFC 9110, section 7.8)."""

    async def test() -> None:
        request = (
            posted("/v1/completions", body, OFFER)
            + b"GET /health HTTP/1.1\r\nconnection: close\r\nhost: localhost\r\n\r\n"
        )
        async with api() as server:
            answer = await answer_to(server, *(request[at : at + size] for at in range(0, len(request), size)))
        first, _, health = answer.rpartition(b"HTTP/1.1 200 OK")
        assert said(first) == ALL_TEXT
        assert health.endswith(b'{"status":"ok"}')
        assert b" 101 " not in answer

    run(test)


def test_pipelined_requests_of_every_kind_are_answered_in_order() -> None:
    async def test() -> None:
        requests = (
            posted("/v1/completions", COMPLETION, close=False)
            + b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
            + b"HEAD /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
            + posted("/v1/chat/completions", CHAT | {"stream": True}, close=False)
            + posted("/v1/chat/completions", CHAT | {"n": 99}, close=False)
            + b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        async with api() as server:
            answer = await answer_to(server, requests)
        statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"200", b"200", b"200", b"200", b"400", b"404"]
        assert answer.index(b'"object":"text_completion"') < answer.index(b'"object":"list"') < answer.index(b"[DONE]")

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_a_body_without_chunks_and_its_end(stream: bool) -> None:
    async def test() -> None:
        async with api() as server:
            answer = await answer_to(server, posted("/v1/chat/completions", CHAT | {"stream": stream}, version=b"1.0"))
        assert b"chunked" not in split(answer)[0]
        assert said(answer) == ALL_TEXT

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_who_ends_its_own_side_is_answered_to_the_end(stream: bool) -> None:
    async def test() -> None:
        service = TextService()
        async with listening(make_api(service)) as server:
            reader, writer = await asyncio.open_connection(HOST, server.address.port)
            writer.write(posted("/v1/completions", COMPLETION | {"stream": stream}))
            writer.write_eof()
            assert said(await reader.read()) == ALL_TEXT
            writer.close()
        assert (service.said_all, service.cancelled) == (1, 0)

    run(test)


def test_a_body_is_asked_for_only_if_it_will_be_read() -> None:
    """RFC 9110, section 10.1.1: what is refused by its head is refused before its body comes."""

    async def test() -> None:
        expecting = b"expect: 100-continue\r\n"
        whole = posted("/v1/completions", COMPLETION, expecting)
        head, _, body = whole.partition(b"\r\n\r\n")
        async with api() as server:
            answer = await answer_to(server, head + b"\r\n\r\n", body)
            assert answer.startswith(CONTINUE + b"HTTP/1.1 200 OK")
            assert said(answer) == ALL_TEXT
            text = head.replace(b"application/json", b"text/plain") + b"\r\n\r\n"
            assert (await answer_to(server, text)).startswith(b"HTTP/1.1 415")
            nowhere = head.replace(b"/v1/completions", b"/v1/nowhere") + b"\r\n\r\n"
            assert (await answer_to(server, nowhere)).startswith(b"HTTP/1.1 404")
            empty = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n"
            answer = await answer_to(server, empty + JSON + expecting + b"\r\n")
            assert answer.removeprefix(CONTINUE).startswith(b"HTTP/1.1 400"), "no body to wait for"
        async with api(gate=CountingGate()) as server:
            assert (await answer_to(server, head + b"\r\n\r\n")).startswith(b"HTTP/1.1 401")

    run(test)


@pytest.mark.parametrize("path", READS)
def test_head_has_the_heads_of_get_and_nothing_behind_it(path: str) -> None:
    """RFC 9110, section 9.3.2; on one connection, so that a body would be taken for the next answer."""

    async def test() -> None:
        async with api() as server:
            head = b"HEAD %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path.encode()
            get = b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % path.encode()
            answer = await answer_to(server, head + get)
        first, _, rest = answer.partition(b"\r\n\r\n")
        assert rest.startswith(b"HTTP/1.1 200 OK"), rest[:100]
        got, body = rest.split(b"\r\n\r\n", 1)
        same = [b"content-type", b"content-length", b"allow", b"cache-control"]
        assert _fields(first, same) == _fields(got, same)
        assert body

    run(test)


def _fields(head: bytes, names: list[bytes]) -> dict[bytes, bytes]:
    lines = [line.lower().partition(b": ") for line in head.split(b"\r\n")[1:]]
    return {name: value for name, _, value in lines if name in names}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://localhost/v1/models HTTP/1.1\r\nhost: localhost\r\n", 200),  # absolute form, RFC 9112 3.2.2
        (b"GET /v1/models HTTP/1.1\r\n", 400),  # no host, RFC 9112 3.2
        (b"HEAD /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n", 405),
        (b"PUT /v1/models HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n", 405),
        (b"GET /v1/models?limit=1 HTTP/1.1\r\nhost: localhost\r\nrange: bytes=0-3\r\n", 200),
        (b"GET /v1/models HTTP/1.1\r\nHOST:localhost\r\nACCEPT: application/xml\r\nte: trailers\r\n", 200),
        (b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n", 200),  # without a body
    ],
)
def test_other_forms_of_requests(head: bytes, status: int) -> None:
    async def test() -> None:
        async with api() as server:
            answer = await answer_to(server, head + b"connection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d" % status), answer[:100]
        if status == 405:
            assert _fields(answer.partition(b"\r\n\r\n")[0], [b"allow"]), "RFC 9110, section 15.5.6"

    run(test)


def test_chunks_with_extensions_and_trailers_are_a_body() -> None:
    async def test() -> None:
        content = json.dumps(COMPLETION).encode()
        chunks = b"%x;name=value\r\n%b\r\n" % (7, content[:7]) + b"%x\r\n%b\r\n" % (len(content) - 7, content[7:])
        head = (
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
        )
        async with api() as server:
            answer = await answer_to(server, head + JSON + b"\r\n" + chunks + b"0\r\nx-checksum: 1\r\n\r\n")
        assert said(answer) == ALL_TEXT

    run(test)


@needs_curl
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        ("--http2",),
        ("--compressed",),
        ("--http1.0",),
        ("-H", "expect: 100-continue"),
        ("-H", "transfer-encoding: chunked"),
        ("--tcp-nodelay", "--no-keepalive"),
    ],
    ids=lambda options: options[-1],
)
def test_curl_is_answered_alike_whatever_it_offers(options: tuple[str, ...], stream: bool) -> None:
    async def test() -> None:
        async with api() as server:
            body = json.dumps(COMPLETION | {"stream": stream})
            url = f"{url_of(server)}v1/completions"
            curl = [
                "curl",
                "-sS",
                "-i",
                "--raw",
                "-m",
                "30",
                *options,
                "-H",
                "content-type: application/json",
                "-d",
                body,
            ]
            process = await asyncio.create_subprocess_exec(*curl, url, stdout=asyncio.subprocess.PIPE)
            answer, _ = await process.communicate()
        assert process.returncode == 0
        assert said(answer) == ALL_TEXT

    run(test)
