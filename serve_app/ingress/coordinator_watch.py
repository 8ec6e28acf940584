"""Finds coordinators that are silent, so that their responses can resume elsewhere.

A coordinator that hangs or is cut off may continue at any moment, and Serve ends it only after many seconds. Where
another coordinator is ready, its responses need not wait for that: a wrong guess costs one prefill.
"""

import asyncio
from collections.abc import Awaitable, Callable

SILENCE_S = 1.5  # time without a message while it makes responses, after which it is probed


class CoordinatorWatch:
    """Watches one coordinator for as long as an ingress reads its stream. All methods run on one event loop."""

    def __init__(self, answers: Callable[[], Awaitable[bool]], elsewhere: Callable[[], Awaitable[bool]]) -> None:
        """Start the silence now.

        Args:
            answers: probes the coordinator; False if it does not answer in time.
            elsewhere: returns whether another coordinator can make responses now.
        """
        self._answers, self._elsewhere = answers, elsewhere
        self.heard()

    def heard(self) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()

    async def wait_for_silence(self) -> None:
        """Return once the coordinator is silent, does not answer a probe, and another one is ready."""
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
