"""Chunks leave together, none is lost while nobody reads, and an error never overtakes them."""

import asyncio

import pytest

from outrider.contracts.errors import GenerationFailedError, OutriderError
from outrider.contracts.requests import GenerationChunk, RoundStats
from serve_app.coordination.credit import MOST_UNREAD_TOKENS
from serve_app.coordination.generations.outlets import Message, Outlet, Outlets
from tests.unit.virtual_clock import now_s, on_loop


def chunk(token_id: int) -> GenerationChunk:
    return GenerationChunk((token_id,), (), RoundStats(), 0)


def read(message: Message) -> list[tuple[str, int]]:
    return [(name, piece.token_ids[0]) for name, piece in message if isinstance(piece, GenerationChunk)]


@on_loop
async def test_what_comes_at_once_leaves_at_once_and_together_and_later_chunks_gather() -> None:
    outlet, got = Outlet(now_s), list[tuple[float, list[tuple[str, int]]]]()

    async def listen() -> None:
        async for message in outlet.messages():
            got.append((round(now_s(), 4), read(message)))

    listening = asyncio.create_task(listen())
    with outlet.response("a") as (put_a, _), outlet.response("b") as (put_b, _):
        await asyncio.sleep(0.5)
        put_a(chunk(1))
        put_b(chunk(2))
        await asyncio.sleep(0.005)
        put_a(chunk(3))
        await asyncio.sleep(0.01)
        put_b(chunk(4))
        await asyncio.sleep(0.5)
        put_a(chunk(5))
    await listening
    assert got == [(0.5, [("a", 1), ("b", 2)]), (0.52, [("a", 3), ("b", 4)]), (1.015, [("a", 5)])]


@on_loop
async def test_what_was_put_before_anybody_reads_waits_and_a_reader_without_responses_is_let_go() -> None:
    outlet = Outlets(now_s).of("ingress")
    with outlet.response("a") as (put, _):
        put(chunk(1))
    assert [read(message) async for message in outlet.messages()] == [[("a", 1)]]
    assert now_s() < 5.0
    with outlet.response("b") as (put, _):
        messages = outlet.messages()
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(100.0)
        put(chunk(2))
        assert read(await waiting) == [("b", 2)], "as long as a response is made, it goes on"
    await messages.aclose()


@on_loop
async def test_an_error_comes_behind_the_chunks_before_it_and_is_raised_where_there_are_none() -> None:
    outlet = Outlet(now_s)
    with outlet.response("a") as (put, _):
        put(chunk(1))
        raise GenerationFailedError("lost")
    (message,) = [message async for message in outlet.messages()]
    assert [type(piece) for _, piece in message] == [GenerationChunk, GenerationFailedError]
    with pytest.raises(OutriderError, match="full"), outlet.response("b"):
        raise GenerationFailedError("full")
    assert [message async for message in outlet.messages()] == []


@on_loop
async def test_an_ingress_that_has_gone_is_forgotten() -> None:
    outlets = Outlets(now_s)
    with outlets.of("gone").response("a") as (put, _):
        put(chunk(1))
        gone = outlets.of("gone")
        await asyncio.sleep(1000.0)
        assert outlets.of("other") is not gone
        assert outlets.of("gone") is gone, "a response is being made"
    await asyncio.sleep(1000.0)
    outlets.of("third")
    assert outlets.of("gone") is not gone


@on_loop
async def test_what_nobody_reads_uses_up_a_responses_credit_alone() -> None:
    outlet = Outlet(now_s)
    with outlet.response("a") as (put_a, credit_a), outlet.response("b") as (put_b, credit_b):
        for token_id in range(MOST_UNREAD_TOKENS):
            assert credit_a.left
            put_a(chunk(token_id))
        put_b(chunk(0))
        assert (credit_a.left, credit_b.left) == (False, True)
        waiting = asyncio.ensure_future(credit_a.restored())
        outlet.read({"b": 1, "gone": 7})
        await asyncio.sleep(0)
        assert not waiting.done()
        outlet.read({"a": 1})
        await waiting
        put_a(chunk(0))
        outlet.read({"a": 1})
        assert not credit_a.left, "told again, it was read once"
        outlet.read({"a": 10**9})
        for token_id in range(MOST_UNREAD_TOKENS):
            assert credit_a.left, "more than was told cannot have been read"
            put_a(chunk(token_id))
        assert not credit_a.left


@on_loop
async def test_where_nobody_can_say_what_was_read_nothing_waits_for_it() -> None:
    outlets = Outlets(now_s)
    with outlets.of("ingress").response("a") as (put, credit):
        for token in range(MOST_UNREAD_TOKENS):
            put(chunk(token))
        assert not credit.left
        outlets.unheard(True)
        assert credit.left
        with outlets.of("ingress").response("b") as (_, later), outlets.of("another").response("c") as (_, another):
            for begun in (later, another):
                begun.sent(2 * MOST_UNREAD_TOKENS)
                assert begun.left
                begun.suspend()
                assert not begun.left, "its place is needed all the same"
                begun.resume()
            outlets.unheard(False)
            assert not any(one.left for one in (credit, later, another))
