"""Await something no longer than it may take."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def loop_now_s() -> float:
    """Return the running event loop's monotonic clock, which its timers use."""
    return asyncio.get_running_loop().time()


async def within(deadline_s: float, awaited: Awaitable[_Result]) -> _Result:
    """Return the result of ``awaited``; cancel it and raise TimeoutError after ``deadline_s`` seconds.

    ``asyncio.wait_for`` of Python 3.11 may swallow a cancellation that comes together with the result. This does not:
    the cancelled task may be the only one that can undo what the result stands for.
    """
    async with asyncio.timeout(deadline_s):
        return await awaited


def retrieve(task: "asyncio.Future[Any]") -> None:
    """Take an ended task's error, or asyncio would log that it was never retrieved. A callback of the task."""
    if not task.cancelled():
        task.exception()
