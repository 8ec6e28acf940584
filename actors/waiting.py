"""Await something no longer than it may take."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_Result = TypeVar("_Result")


def loop_now_s() -> float:
    """Monotonic: the running loop's clock, which its timers go by."""
    return asyncio.get_running_loop().time()


async def within(deadline_s: float, awaited: Awaitable[_Result]) -> _Result:
    """The result, or a TimeoutError after ``deadline_s`` seconds.

    Unlike ``asyncio.wait_for`` of Python 3.11 it never swallows a cancellation that comes together with the result:
    what is cancelled may be the only one who would undo what the result stands for.
    """
    async with asyncio.timeout(deadline_s):
        return await awaited
