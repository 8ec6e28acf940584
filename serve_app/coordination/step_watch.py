"""Watches over a verifier's steps: one that owes a step for too long is ended, and is doubted long before that.

A process that stands still may go on any moment, and its KV with it, so it is not ended early. But where another
coordinator's verifier can go on at once, its responses need not wait for what may come.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf

_SLOWER = 4.0  # than the slowest of the last steps: then it is no slow step
_FORGOTTEN = 0.95  # what is left of the slowest one with every step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Doubt:
    """When a verifier is asked whether it gets on.

    Attributes:
        silence_s: without a step while something is under way.
        elsewhere: whether responses can go on elsewhere; else there is nothing to gain.
        is_silent: asks; True if it does not answer, or has been in one step for longer than so many seconds.
    """

    silence_s: float
    elsewhere: Callable[[], bool]
    is_silent: Callable[[float], Awaitable[bool]]


class StepWatch:
    """Of one verifier. All methods run on one event loop."""

    def __init__(
        self, deadline_s: float, hangs: Callable[[], None], lost: Callable[[], None], doubt: Doubt | None
    ) -> None:
        """Nothing is under way.

        Args:
            deadline_s: of a step.
            hangs: called when it is missed.
            lost: called when the verifier is found silent.
            doubt: when it is asked; never, without.
        """
        self._deadline_s, self._hangs, self._lost, self._doubt = deadline_s, hangs, lost, doubt
        self._timers: list[asyncio.TimerHandle] = []
        self._asking: asyncio.Task[None] | None = None
        self._slowest_s = 0.0

    @property
    def elsewhere(self) -> bool:
        """Whether responses that lost this verifier can go on at once."""
        return self._doubt is not None and self._doubt.elsewhere()

    @property
    def on(self) -> bool:
        """Whether a step is waited for."""
        return bool(self._timers)

    def took(self, step_s: float) -> None:
        """A step has taken so long."""
        self._slowest_s = max(step_s, _FORGOTTEN * self._slowest_s)

    def anew(self, *, under_way: bool) -> None:
        """From now on, while something is under way."""
        self.stop()
        if not under_way:
            return
        loop = asyncio.get_running_loop()
        if self._deadline_s < inf:
            self._timers.append(loop.call_later(self._deadline_s, self._hangs))
        if self._doubt is not None:
            self._timers.append(loop.call_later(self._doubt.silence_s, self._ask))

    def stop(self) -> None:
        """Nothing is waited for."""
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self._asking is not None and self._asking is not asyncio.current_task():
            self._asking.cancel()
        self._asking = None

    def _ask(self) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._asked())

    async def _asked(self) -> None:
        doubt = self._doubt
        assert doubt is not None, "nobody else asks"
        try:
            while True:
                longest_s = max(doubt.silence_s, _SLOWER * self._slowest_s)
                if doubt.elsewhere() and await doubt.is_silent(longest_s):
                    break
                await asyncio.sleep(doubt.silence_s)
        except Exception:  # what is not known is no silence; the deadline stands
            log.exception("asking_failed")
            return
        self._lost()
