"""Doubts a coordinator that says nothing: one that stands still, or is cut off, keeps responses that others can make.

It may go on any moment, and Serve ends it only after many seconds. But where another one has a verifier that is ready,
nobody need wait for that: a wrong guess costs a prefill.
"""

import asyncio
from collections.abc import Awaitable, Callable

SILENCE_S = 1.5  # without a word while it makes something; then it is asked


class CoordinatorWatch:
    """Of one coordinator, as long as an ingress hears it."""

    def __init__(self, answers: Callable[[], Awaitable[bool]], elsewhere: Callable[[], Awaitable[bool]]) -> None:
        """It was heard now.

        Args:
            answers: asks it; False if it does not answer in time.
            elsewhere: whether another one can make responses now.
        """
        self._answers, self._elsewhere = answers, elsewhere
        self.heard()

    def heard(self) -> None:
        """It has said something."""
        self._heard_at_s = asyncio.get_running_loop().time()

    async def is_silent(self) -> None:
        """Return once it does not answer, and another one can go on with what it makes; else it is waited for."""
        loop = asyncio.get_running_loop()
        while True:
            heard_at_s = self._heard_at_s
            await asyncio.sleep(heard_at_s + SILENCE_S - loop.time())
            silent = self._heard_at_s == heard_at_s and not await self._answers() and await self._elsewhere()
            if self._heard_at_s != heard_at_s:
                continue
            self.heard()
            if silent:
                return
