"""Bodies that come slowly, over real sockets: they have no place, and one key's keep out nobody else's; packed ones."""

import asyncio
import gzip
import json
from dataclasses import replace

import httpx
import pytest

from outrider.contracts.errors import BusyError
from serve_app.api.http.bounded import Bodies
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.asking import COMPLETION, JSON, ask, error_of
from tests.unit.serve_app.api.listening import HOST, listening, on_a_loop, until, url_of
from tests.unit.serve_app.api.test_http_keys import ALICE, BOB, CountingGate
from tests.unit.serve_app.api.text_service import SETTINGS, TextService

SLOW = 300
HALF = (
    b"POST /v1/completions HTTP/1.1\r\nhost: outrider\r\nauthorization: Bearer %s\r\n"
    b"content-type: application/json\r\ncontent-length: 10000\r\n\r\n{" % ALICE.encode()
)


@on_a_loop
async def test_a_key_that_sends_slowly_keeps_no_place_from_another() -> None:
    service = TextService(gate=CountingGate(), settings=replace(SETTINGS, max_requests=2))
    async with listening(make_api(service)) as server:
        slow = [await asyncio.open_connection(HOST, server.address.port) for _ in range(SLOW)]
        for _, writer in slow:
            writer.write(HALF)
        refused = [asyncio.create_task(reader.read(12)) for reader, _ in slow]
        await until(lambda: sum(task.done() for task in refused) == SLOW - Bodies.most_of_account)
        assert {task.result() for task in refused if task.done()} == {b"HTTP/1.1 429"}
        async with httpx.AsyncClient(base_url=url_of(server)) as client:
            for _ in range(10):
                headers = {"authorization": f"Bearer {BOB}"}
                answer = await client.post("/v1/completions", json=COMPLETION, headers=headers)
                assert answer.status_code == httpx.codes.OK, answer.text
            again = await client.post("/v1/completions", json=COMPLETION, headers={"authorization": f"Bearer {ALICE}"})
            assert again.status_code == httpx.codes.TOO_MANY_REQUESTS
        assert sum(task.done() for task in refused) == SLOW - Bodies.most_of_account
        for task in refused:
            task.cancel()
        await asyncio.gather(*refused, return_exceptions=True)
        for _, writer in slow:
            writer.close()


def test_bytes_of_bodies_are_bounded_by_account_and_together() -> None:
    bodies = Bodies()
    bodies.most_bytes_of_account, bodies.most_bytes = 100, 150
    with bodies.held("a") as alone:
        alone(120)
    with bodies.held("a") as one, bodies.held("a") as two, bodies.held("b") as other:
        one(60)
        two(40)
        with pytest.raises(BusyError):
            two(1)
        other(49)
        with pytest.raises(BusyError):
            other(1)
    assert (bodies._number, bodies._bytes) == ({}, {})  # noqa: SLF001 (nothing is left of them)


def test_their_number_is_bounded_together() -> None:
    bodies = Bodies()
    bodies.most = 1
    with bodies.coming(""), pytest.raises(BusyError, match="fewer than 1 arriving bodies"), bodies.coming("b"):
        pass
    with bodies.coming("b"):
        pass


def packed(*parts: bytes) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) for part in parts)  # names of tests are made of it


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip", "identity"])
def test_a_body_may_be_packed(encoding: str) -> None:
    body = json.dumps(COMPLETION).encode()
    content = body if encoding == "identity" else packed(body[:20], body[20:])
    headers = JSON | {"content-encoding": encoding}
    response = ask(TextService(), "POST", "/v1/completions", content=content, headers=headers)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("content", "encoding", "status", "message"),
    [
        (b"{}", "br", 415, "needs Content-Encoding: gzip, or none, found br"),
        (b"{}", "gzip, gzip", 415, "found gzip, gzip"),
        (b"{}", "gzip", 400, "needs a body in gzip, as Content-Encoding says"),
        (packed(b"{}")[:-1], "gzip", 400, "needs a whole body in gzip"),
        (b"", "gzip", 400, "needs a whole body in gzip"),
        (packed(*[b" "] * 17), "gzip", 400, "of at most 16 members"),
        (packed(b'"' + b"a" * 10_000_000 + b'"'), "gzip", 413, "needs a body of at most"),
    ],
)
def test_what_cannot_be_unpacked_is_refused(content: bytes, encoding: str, status: int, message: str) -> None:
    headers = JSON | {"content-encoding": encoding}
    response = ask(TextService(), "POST", "/v1/completions", content=content, headers=headers)
    assert response.status_code == status, response.text
    assert message in error_of(response)["message"]


NAMED = b"\x1f\x8b\x08\x08" + bytes(4) + b"\x00\x03" + b"n" * 100_000  # of a file whose name has no end
EMPTY_BLOCKS = packed(b"")[:10] + b"\x00\x00\x00\xff\xff" * 20_000


@pytest.mark.parametrize("content", [NAMED, EMPTY_BLOCKS], ids=["name", "blocks"])
def test_what_unpacks_to_nothing_is_bounded_as_it_comes(content: bytes) -> None:
    headers = JSON | {"content-encoding": "gzip"}
    response = ask(TextService(), "POST", "/v1/completions", content=content, headers=headers)
    assert response.status_code == 413, response.text
    assert "needs a body in gzip of at most 50000 bytes" in error_of(response)["message"]


def test_a_coding_that_is_told_twice_is_two_codings() -> None:
    headers = [*JSON.items(), ("content-encoding", "gzip"), ("content-encoding", "gzip")]
    response = ask(TextService(), "POST", "/v1/completions", content=packed(b"{}"), headers=headers)
    assert (response.status_code, "found gzip, gzip" in response.text) == (415, True)


def test_a_byte_order_mark_is_passed_over() -> None:
    """As RFC 8259, section 8.1, allows."""
    content = b"\xef\xbb\xbf" + json.dumps(COMPLETION).encode()
    assert ask(TextService(), "POST", "/v1/completions", content=content, headers=JSON).status_code == 200
