"""Await something no longer than it may take."""

import asyncio
from collections.abc import Awaitable, Callable
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


async def cut_if_dead(
    quiet_s: float,
    is_awaited: Callable[[], bool],
    heard: Callable[[], int],
    ask: Callable[[], None],
    cut: Callable[[], None],
) -> None:
    """Watch over a stream, and ``cut`` it once it is dead: an end that hangs, or is cut off, does not say so.

    Where nothing came for ``quiet_s`` though something is awaited, ``ask`` for a sign of life; nothing in as long again
    is death. ``heard`` counts what has come.
    """
    before, is_asked = heard(), False
    while True:
        await asyncio.sleep(quiet_s)
        if not is_awaited() or heard() != before:
            before, is_asked = heard(), False
        elif is_asked:
            cut()
            return
        else:
            is_asked = True
            ask()


class Named:
    """A named actor's handle for one event loop, found in a thread: the cluster's head may not answer for long."""

    def __init__(self, find: Callable[[], Any], deadline_s: float = 5.0) -> None:
        """``find`` may block for as long as the head is away; ``handle`` waits ``deadline_s`` for it at most."""
        self._find, self._deadline_s = find, deadline_s
        self._finding: asyncio.Future[Any] | None = None
        self.known: Any = None

    async def handle(self) -> Any:
        """Return the actor, found again if it was ``lost``.

        Raises:
            TimeoutError: the head does not answer in time.
            Exception: as ``find``.
        """
        if self.known is not None:
            return self.known
        if self._finding is None:
            self._finding = asyncio.ensure_future(asyncio.to_thread(self._find))
            self._finding.add_done_callback(self._found)
        return await within(self._deadline_s, asyncio.shield(self._finding))  # shielded: all callers share the search

    def lost(self) -> None:
        """Drop the handle: the actor is gone for good, and another one may have its name."""
        self.known = None

    def _found(self, finding: "asyncio.Future[Any]") -> None:
        self._finding = None
        if not finding.cancelled() and finding.exception() is None:
            self.known = finding.result()
