"""Clients that offer another protocol, speak HTTP/1.0, or end their side of the connection after their request."""

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from tests.unit.serve_app.api.listening import CLOSING, HOST, answer_to, listening, on_a_loop

OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the method and the body, in two pieces, without a length."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["method"].encode() + b" ", "more_body": True})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("offered", [b"h2c", b"websocket", b"h2c, TLS/1.0"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_offer_to_upgrade_is_passed_over(offered: bytes, size: int) -> None:
    @on_a_loop
    async def test() -> None:
        head = b"POST / HTTP/1.1\r\nhost: outrider\r\n" + OFFER % offered
        requests = (
            head
            + b"content-length: 5\r\n\r\nhello"
            + head
            + b"transfer-encoding: chunked\r\n\r\n3\r\nyou\r\n0\r\n\r\n"
            + head.replace(b"POST", b"GET")
            + b"\r\n"
            + CLOSING
        )
        async with listening(echo) as server:
            answer = await answer_to(server, *(requests[at : at + size] for at in range(0, len(requests), size)))
        assert answer.count(b"HTTP/1.1 200 OK") == 4
        parts = answer.split(b"\r\n\r\n")
        bodies = [part.removesuffix(b"\r\n0") for part in parts if b"POST" in part or b"GET" in part]
        assert bodies == [b"5\r\nPOST \r\n5\r\nhello", b"5\r\nPOST \r\n3\r\nyou", b"4\r\nGET ", b"4\r\nGET "]

    test()


@on_a_loop
async def test_an_offer_does_not_loosen_how_a_body_is_framed() -> None:
    for framing in (
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n",
    ):
        head = b"POST / HTTP/1.1\r\nhost: outrider\r\n" + OFFER % b"h2c"
        async with listening(echo) as server:
            answer = await answer_to(server, head + framing + b"\r\n5\r\nhello\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400")


@on_a_loop
async def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    async with listening(echo) as server:
        answer = await answer_to(server, b"POST / HTTP/1.0\r\ncontent-length: 5\r\n\r\nhello")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert body == b"POST hello"


@pytest.mark.parametrize(("version", "continued"), [(b"1.1", True), (b"1.0", False)])
def test_a_body_is_asked_for_where_that_is_expected(version: bytes, continued: bool) -> None:
    """As RFC 9110 10.1.1 has it."""

    @on_a_loop
    async def test() -> None:
        head = b"POST / HTTP/%b\r\nhost: o\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"
        async with listening(echo) as server:
            answer = await answer_to(server, head % version + b"hel", b"lo")
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK") is continued
        assert answer.count(b"HTTP/1.1 ") == 1 + continued
        assert answer.count(b"hello") == 1

    test()


@on_a_loop
async def test_what_is_refused_by_its_head_is_not_asked_for() -> None:
    async def refuse(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    head = b"POST / HTTP/1.1\r\nhost: o\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"
    async with listening(refuse) as server:
        assert (await answer_to(server, head)).startswith(b"HTTP/1.1 401")


@on_a_loop
async def test_pipelined_requests_are_answered_in_their_order() -> None:
    requests = [b"POST / HTTP/1.1\r\nhost: o\r\ncontent-length: 2\r\n\r\n%02d" % number for number in range(5)]
    async with listening(echo) as server:
        answer = await answer_to(server, b"".join(requests) + CLOSING)
    places = [answer.index(b"\r\n%02d\r\n" % number) for number in range(5)]
    assert places == sorted(places)
    assert answer.count(b"HTTP/1.1 200 OK") == 6


@on_a_loop
async def test_http_2_by_prior_knowledge_is_a_400() -> None:
    async with listening(echo) as server:
        assert (await answer_to(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("request_", [b"POST / HTTP/1.1\r\nhost: o\r\ncontent-length: 5\r\n\r\nhello", CLOSING * 1])
def test_a_client_that_ends_its_side_is_answered(request_: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        async with listening(echo) as server:
            reader, writer = await asyncio.open_connection(HOST, server.address.port)
            writer.write(request_)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
        assert b"HTTP/1.1 200 OK" in answer
        assert answer.endswith(b"0\r\n\r\n")

    test()


@on_a_loop
async def test_a_client_that_ends_its_side_amid_its_request_is_cut() -> None:
    async with listening(echo) as server:
        reader, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(b"POST / HTTP/1.1\r\nhost: o\r\ncontent-length: 5\r\n\r\nhel")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


@on_a_loop
async def test_a_client_that_leaves_altogether_is_missed() -> None:
    left = asyncio.Event()

    async def waits(_: Scope, receive: Receive, __: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async with listening(waits) as server:
        _, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(CLOSING)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        async with asyncio.timeout(5):
            await left.wait()
