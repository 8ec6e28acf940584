"""An ingress hears all responses of a coordinator on one stream, and loses none of them silently."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Container
from dataclasses import replace
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError, RayError
from ray.serve.handle import DeploymentHandle

from outrider.contracts.errors import (
    CoordinatorDrainingError,
    CoordinatorSilentError,
    VerifierAwayError,
    VerifierLostError,
)
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from serve_app.coordination.credit import MOST_UNREAD_TOKENS
from serve_app.ingress.streams import CoordinatorStreams
from tests.unit.serve_app.api.in_memory_service import request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import until
from tests.unit.serve_app.ingress.in_memory_handle import MemoryHandle
from tests.unit.virtual_clock import now_s, on_loop

REQUESTS = [request_for(name, window=0) for name in "abc"]


def streams_of(
    handle: MemoryHandle,
    *others: str,
    drained: Container[str] = (),
    routed: Callable[[float], None] = lambda _: None,
) -> CoordinatorStreams:
    """``others`` are coordinators that have a verifier."""

    async def elsewhere(coordinator: str) -> bool:
        return any(other != coordinator for other in others)

    return CoordinatorStreams(cast("DeploymentHandle[Any]", handle), elsewhere, drained.__contains__, routed)


async def read(streams: CoordinatorStreams, request: GenerationRequest) -> list[GenerationChunk]:
    return [chunk async for chunk in streams.chunks(request)]


@on_loop
async def test_responses_of_one_coordinator_share_a_stream_and_a_later_one_opens_it_anew() -> None:
    handle = MemoryHandle(coordinator="the one")
    streams = streams_of(handle)
    for opened in (1, 2):
        told = await asyncio.gather(*(read(streams, request) for request in REQUESTS))
        assert [tokens_of(chunks) for chunks in told] == [truth_of(request) for request in REQUESTS]
        assert len(handle.chunks.streams) == opened
        await handle.closed()
        await asyncio.sleep(10.0)


@on_loop
async def test_the_way_to_a_coordinator_is_told_of_responses_that_are_new() -> None:
    handle, took_s = MemoryHandle(), list[float]()
    streams = streams_of(handle, routed=took_s.append)
    (first, *_) = await read(streams, REQUESTS[0])
    await read(streams, replace(REQUESTS[1], output_ids=first.token_ids))
    assert len(took_s) == 1
    assert 0.0 <= took_s[0] < 1.0
    await handle.closed()


@on_loop
async def test_each_coordinator_has_a_stream_of_its_own() -> None:
    handle = MemoryHandle()
    streams = streams_of(handle)
    told = await asyncio.gather(*(read(streams, request) for request in REQUESTS))
    assert [tokens_of(chunks) for chunks in told] == [truth_of(request) for request in REQUESTS]
    assert len(handle.chunks.streams) == 3
    await handle.closed()


@on_loop
async def test_a_coordinator_that_dies_fails_its_own_responses_only() -> None:
    handle = MemoryHandle((3, ActorDiedError()))
    streams = streams_of(handle)
    lost, goes_on = await asyncio.gather(*(read(streams, request) for request in REQUESTS[:2]), return_exceptions=True)
    assert isinstance(lost, ActorDiedError)
    assert not isinstance(goes_on, BaseException)
    assert tokens_of(goes_on) == truth_of(REQUESTS[1])
    await handle.closed()


@on_loop
async def test_a_stream_that_breaks_is_told_to_all_who_listen() -> None:
    handle = MemoryHandle(coordinator="the one")
    handle.broken = RayError("the stream broke")
    streams = streams_of(handle)
    told = await asyncio.gather(*(read(streams, request) for request in REQUESTS), return_exceptions=True)
    assert [type(error) for error in told] == [RayError] * 3
    handle.broken = None
    assert tokens_of(await read(streams, replace(REQUESTS[0], generation="again"))) == truth_of(REQUESTS[0])
    await handle.closed()


@on_loop
async def test_what_a_coordinator_makes_that_stands_still_goes_on_where_there_is_another_one() -> None:
    handle = MemoryHandle(coordinator="the one")
    handle.goes_on.clear()
    streams = streams_of(handle, "the one", "another")
    began_s = now_s()
    told = await asyncio.gather(*(read(streams, request) for request in REQUESTS), return_exceptions=True)
    assert [type(error) for error in told] == [CoordinatorSilentError] * 3
    assert now_s() - began_s < 3.0
    handle.goes_on.set()
    assert tokens_of(await read(streams, replace(REQUESTS[0], generation="again"))) == truth_of(REQUESTS[0])
    assert handle.lost[-1] == ("the one",)
    await handle.closed()


@on_loop
async def test_one_that_stands_still_is_waited_for_where_there_is_no_other_one() -> None:
    handle = MemoryHandle(coordinator="the one")
    handle.goes_on.clear()
    streams = streams_of(handle, "the one")
    making = asyncio.create_task(read(streams, REQUESTS[0]))
    await asyncio.sleep(60.0)
    handle.goes_on.set()
    assert tokens_of(await making) == truth_of(REQUESTS[0])
    await handle.closed()


@on_loop
async def test_one_that_has_nothing_to_say_and_answers_is_not_silent() -> None:
    handle = MemoryHandle(coordinator="the one")
    most = MOST_UNREAD_TOKENS + MOST_UNREAD_TOKENS // 2
    long = replace(request_for("long", window=0), max_tokens=most, ignore_eos=True)
    streams = streams_of(handle, "another")
    slow = streams.chunks(long)
    got = [await anext(slow)]
    await asyncio.sleep(60.0)  # nothing is read, so nothing more is made
    got += [chunk async for chunk in slow]
    assert tokens_of(got) == truth_of(long)
    await handle.closed()


@on_loop
async def test_whoever_stops_reading_is_forgotten_and_the_others_go_on() -> None:
    handle = MemoryHandle(coordinator="the one")
    streams = streams_of(handle)
    grants = streams.chunks(REQUESTS[0])
    stays = asyncio.create_task(read(streams, REQUESTS[1]))
    await anext(grants)
    await grants.aclose()
    assert tokens_of(await stays) == truth_of(REQUESTS[1])
    await handle.closed()
    assert sorted(handle.coordinators.left) == ["a", "b"]


@pytest.mark.parametrize("deaf", [0, 3])
@on_loop
async def test_who_does_not_read_holds_up_its_own_response_alone(deaf: int) -> None:
    handle = MemoryHandle(coordinator="the one")
    handle.deaf = deaf
    streams, most = streams_of(handle), MOST_UNREAD_TOKENS
    long = replace(request_for("long", window=0), max_tokens=most + most // 2, ignore_eos=True)
    slow = streams.chunks(long)
    got = [await anext(slow)]
    assert tokens_of(await read(streams, REQUESTS[0])) == truth_of(REQUESTS[0])
    await asyncio.sleep(100.0)
    assert handle.told == most + len(truth_of(REQUESTS[0]))
    got += [chunk async for chunk in slow]
    assert tokens_of(got) == truth_of(long)
    await handle.closed()


@on_loop
async def test_one_that_cannot_be_told_what_was_read_holds_up_its_own_responses_alone() -> None:
    handle = MemoryHandle()
    handle.out_of_reach.add("coordinator 0")
    streams, most = streams_of(handle), MOST_UNREAD_TOKENS
    drained, well = (
        replace(request_for(name, window=0), max_tokens=most + most // 2, ignore_eos=True)
        for name in ("drained", "well")
    )
    held_up = asyncio.create_task(read(streams, drained))
    await asyncio.sleep(0.0)
    assert tokens_of(await read(streams, well)) == truth_of(well)
    assert not held_up.done()
    handle.out_of_reach.clear()
    assert tokens_of(await held_up) == truth_of(drained)
    await handle.closed()


@on_loop
async def test_what_a_drained_one_makes_leaves_one_after_the_other_the_newest_first() -> None:
    handle, drained = MemoryHandle(coordinator="the one"), set[str]()
    streams = streams_of(handle, drained=drained)
    left = list[tuple[str, float]]()

    async def grants(request: GenerationRequest) -> None:
        with pytest.raises(CoordinatorDrainingError):
            await read(streams, request)
        left.append((request.generation, now_s()))

    unread = streams.chunks(request_for("unread", window=0))
    got = [await anext(unread)]
    making = [asyncio.create_task(grants(request)) for request in REQUESTS]
    await until(lambda: handle.told >= 3)
    handle.goes_on.clear()
    await asyncio.sleep(60.0)
    unbegun = asyncio.create_task(read(streams, request_for("unbegun", window=0)))
    drained.add("the one")
    await asyncio.gather(*making)
    assert [name for name, _ in left] == ["c", "b", "a"]
    assert left[0][1] < left[1][1] < left[2][1] < 70.0
    await asyncio.sleep(10.0)
    assert not unbegun.done(), "it would wait anew"
    drained.clear()
    handle.goes_on.set()
    got += [chunk async for chunk in unread]
    assert tokens_of(got) == truth_of(request_for("unread", window=0)), "what has come is read"
    assert tokens_of(await unbegun) == truth_of(request_for("unbegun", window=0))
    await handle.closed()


@pytest.mark.parametrize("error", [ActorDiedError(), RayError("no such replica")])
@on_loop
async def test_what_is_refused_at_once_is_raised(error: Exception) -> None:
    handle = MemoryHandle((0, error))
    with pytest.raises(type(error)):
        await read(streams_of(handle), REQUESTS[0])
    await handle.closed()


@on_loop
async def test_who_was_found_without_a_verifier_is_named_for_a_while_in_the_order_of_the_losses() -> None:
    handle = MemoryHandle(
        (1, VerifierLostError("handed over")), (0, VerifierAwayError("restarts")), (1, RayError("no"))
    )
    streams = streams_of(handle)
    for request in REQUESTS:
        with pytest.raises((VerifierLostError, VerifierAwayError, RayError)):
            await read(streams, request)
    await read(streams, request_for("d", window=0))
    lost = ("coordinator 0", "coordinator 1")
    assert handle.lost == [(), lost[:1], lost, lost], "one that died is no longer routed to"
    await asyncio.sleep(10.0)
    await read(streams, request_for("e", window=0))
    assert handle.lost[-1] == ()
    await handle.closed()


class Mute:
    """A handle whose coordinator takes calls and says nothing."""

    def __init__(self) -> None:
        self.asked = self.cancelled = 0
        self.generate = self

    def options(self, **_: object) -> "Mute":
        return self

    def remote(self, *_: object) -> "Mute":
        self.asked += 1
        return self

    async def __aiter__(self) -> AsyncGenerator[str]:
        """Never anything."""
        await asyncio.Event().wait()
        yield ""

    def cancel(self) -> None:
        self.cancelled += 1


@on_loop
async def test_a_coordinator_that_says_nothing_keeps_nobody_from_being_routed() -> None:
    handle, requests = Mute(), [request_for(f"r{number}", window=0) for number in range(80)]
    streams = streams_of(cast("MemoryHandle", handle))
    reading = [asyncio.create_task(read(streams, request)) for request in requests]
    await asyncio.sleep(0.1)
    assert handle.asked == 32, "half of the places: all are of one account"
    await asyncio.sleep(5.0)
    assert handle.asked == 80
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await asyncio.sleep(0.1)
    assert handle.cancelled == 80


@on_loop
async def test_who_asks_and_goes_has_no_more_calls_before_coordinators_than_who_stays() -> None:
    handle = Mute()
    streams = streams_of(cast("MemoryHandle", handle))
    for number in range(200):
        reading = asyncio.create_task(read(streams, request_for(f"r{number}", window=0)))
        await asyncio.sleep(0.001)
        reading.cancel()
    assert handle.asked == 32
    await asyncio.sleep(5.0)
    assert handle.cancelled == 32, "who went before its turn asked for nothing"
