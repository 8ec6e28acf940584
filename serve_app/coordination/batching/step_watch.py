"""Times a verifier's steps: probes a verifier that is silent, and kills one that misses its step deadline.

A process that hangs may continue at any moment with all its KV, so it is not killed early. But where another
coordinator's verifier is ready, responses move there as soon as a probe finds this one silent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf

_SLOWER = 4.0  # a step this many times as long as the slowest of the last ones counts as silence
_FORGOTTEN = 0.95  # factor by which the slowest step's time decays with every step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Doubt:
    """When and how a verifier is probed.

    Attributes:
        is_silent: probes; True if the verifier does not answer, or has been in one step for longer than the argument,
            in seconds.
    """

    silence_s: float  # time without a step, while something is under way, after which it is probed
    elsewhere: Callable[[], bool]  # returns whether responses can go on elsewhere; if not, a probe would gain nothing
    is_silent: Callable[[float], Awaitable[bool]]


class StepWatch:
    """Timers of one verifier's steps. All methods run on one event loop."""

    def __init__(
        self, deadline_s: float, on_deadline: Callable[[], None], lost: Callable[[], None], doubt: Doubt | None
    ) -> None:
        """Start without timers.

        ``lost`` is called when a probe finds the verifier silent; without ``doubt`` it is never probed.
        """
        self._deadline_s, self._on_deadline, self._lost, self._doubt = deadline_s, on_deadline, lost, doubt
        self._timers: list[asyncio.TimerHandle] = []
        self._asking: asyncio.Task[None] | None = None
        self._slowest_s = 0.0

    @property
    def elsewhere(self) -> bool:
        """Whether responses that lost this verifier can go on at another one at once."""
        return self._doubt is not None and self._doubt.elsewhere()

    @property
    def on(self) -> bool:
        return bool(self._timers)

    def took(self, step_s: float) -> None:
        self._slowest_s = max(step_s, _FORGOTTEN * self._slowest_s)

    def anew(self, *, under_way: bool) -> None:
        self.stop()
        if not under_way:
            return
        loop = asyncio.get_running_loop()
        if self._deadline_s < inf:
            self._timers.append(loop.call_later(self._deadline_s, self._on_deadline))
        if self._doubt is not None:
            self._timers.append(loop.call_later(self._doubt.silence_s, self._ask))

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self._asking is not None and self._asking is not asyncio.current_task():  # ``_lost`` may call this from it
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
        except Exception:  # a probe that failed says nothing; the step deadline still holds
            log.exception("asking_failed")
            return
        self._lost()
