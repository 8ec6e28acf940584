"""An event loop whose time stands still while anything can run and jumps to the next timer when nothing can."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")
_BOUND_S = 3600.0  # virtual; a wait in vain ends a test at once


class _Jumping(selectors.DefaultSelector):
    """Never blocks: what would have been waited for has passed."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; else the time until the next timer has passed."""
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing is going to happen")
        self.now_s += max(0.0, timeout)
        return super().select(0.0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its ``time`` is virtual, and with it every timer, timeout and sleep. Not for work in threads."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now_s


def now_s() -> float:
    """On the running loop."""
    return asyncio.get_running_loop().time()


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a virtual loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(_BOUND_S):
                await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(bounded())

    return run
