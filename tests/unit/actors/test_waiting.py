"""Deadlines that lose neither a result nor a cancellation."""

import asyncio

import pytest

from actors.waiting import within


def test_what_comes_in_time_is_returned_and_what_is_late_is_an_error() -> None:
    async def run() -> None:
        assert await within(60, asyncio.sleep(0, "here")) == "here"
        with pytest.raises(TimeoutError):
            await within(0.001, asyncio.Event().wait())

    asyncio.run(run())


def test_a_cancellation_that_comes_with_the_result_is_not_swallowed() -> None:
    async def run() -> None:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        after: list[str] = []

        async def use() -> None:
            after.append(await within(60, result))

        user = asyncio.create_task(use())
        await asyncio.sleep(0)
        result.set_result("here")
        user.cancel()
        with pytest.raises(asyncio.CancelledError):
            await user
        assert after == []

    asyncio.run(run())
