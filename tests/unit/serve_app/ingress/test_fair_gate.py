"""Whoever crowds before a gate waits for itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from outrider.contracts.errors import BusyError
from serve_app.ingress.fair_gate import FairGate


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def turn(gate: FairGate, account: str) -> AsyncIterator[None]:
    leave = await gate.enter(account)
    try:
        yield
    finally:
        leave()
        leave()


async def _stays(gate: FairGate, account: str, seen: list[str], grants: asyncio.Event) -> None:
    async with turn(gate, account):
        seen.append(account)
        await grants.wait()


def test_half_is_left_for_others_and_the_rest_has_turns() -> None:
    async def check() -> None:
        gate, seen, grants = FairGate(4, 100), list[str](), asyncio.Event()
        tasks = [asyncio.create_task(_stays(gate, "crowd", seen, grants)) for _ in range(10)]
        await settled()
        assert seen == ["crowd"] * 2
        tasks.append(asyncio.create_task(_stays(gate, "other", seen, grants)))
        await settled()
        assert seen == ["crowd", "crowd", "other"]
        grants.set()
        await asyncio.gather(*tasks)
        assert len(seen) == 11

    asyncio.run(check())


def test_who_waits_no_longer_or_is_cancelled_inside_leaves_no_place_taken() -> None:
    async def check() -> None:
        gate, seen, grants = FairGate(2, 100), list[str](), asyncio.Event()
        inside = asyncio.create_task(_stays(gate, "a", seen, grants))
        waiting = asyncio.create_task(_stays(gate, "a", seen, grants))
        await settled()
        granted = asyncio.create_task(_stays(gate, "b", seen, grants))
        await asyncio.sleep(0)
        for task in (waiting, inside, granted):
            task.cancel()
        await asyncio.gather(waiting, inside, granted, return_exceptions=True)
        grants.set()
        for account in "abab":
            await asyncio.wait_for(_stays(gate, account, seen, grants), 5)
        assert seen[-4:] == ["a", "b", "a", "b"]

    asyncio.run(check())


def test_who_waits_no_longer_takes_no_room_from_others() -> None:
    async def check() -> None:
        gate, seen, grants = FairGate(2, 4), list[str](), asyncio.Event()
        inside = asyncio.create_task(_stays(gate, "crowd", seen, grants))
        await settled()
        for _ in range(10):
            waiting = asyncio.create_task(_stays(gate, "crowd", seen, grants))
            await settled()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        grants.set()
        await asyncio.wait_for(_stays(gate, "crowd", seen, grants), 5)
        await inside

    asyncio.run(check())


def test_where_too_many_wait_those_of_the_crowd_are_refused() -> None:
    async def check() -> None:
        gate, seen, grants = FairGate(2, 4), list[str](), asyncio.Event()
        tasks = [asyncio.create_task(_stays(gate, "crowd", seen, grants)) for _ in range(5)]
        await settled()
        async with AsyncExitStack() as stack:
            with pytest.raises(BusyError, match="4 of one account"):
                await stack.enter_async_context(turn(gate, "crowd"))
            await asyncio.wait_for(stack.enter_async_context(turn(gate, "other")), 5)
        grants.set()
        await asyncio.gather(*tasks)

    asyncio.run(check())
