"""Engines slowed down to the speed of other hardware, for experiments.

Results are the engine's own. A pass that took less time than it would there is waited out in the thread that computed
it.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from outrider.contracts.drafting import DraftAnswer, DrafterEngine
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, Outcome, Resolution, VerifierEngine


@dataclass(frozen=True, slots=True)
class EmulatedSpeed:
    pass_s: float = 0.0
    row_s: float = 0.0  # in addition, for each position it computes

    def __bool__(self) -> bool:
        return self.pass_s > 0.0 or self.row_s > 0.0


class PassTimer:
    """Waits until passes would be over. ``clock`` and ``sleep`` are the process's, in seconds."""

    def __init__(
        self,
        speed: EmulatedSpeed,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed, self._clock, self._sleep = speed, clock, sleep

    def begun(self) -> float:
        return self._clock()

    def until_over(self, began_at_s: float, rows: int) -> None:
        left_s = began_at_s + self._speed.pass_s + rows * self._speed.row_s - self._clock()
        if left_s > 0.0:
            self._sleep(left_s)


class _Slowed:
    """Wraps another engine, which does all that a subclass does not say."""

    def __init__(self, engine: Any, timer: PassTimer) -> None:
        self._engine, self._timer = engine, timer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class _SlowedDrafter(_Slowed):
    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        began_at_s = self._timer.begun()
        answers: list[DraftAnswer] = self._engine.step(among)
        self._timer.until_over(began_at_s, 0)
        return answers


class _SlowedVerifier(_Slowed):
    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify as the engine; only calls that ran a pass are slowed down."""
        began_at_s = self._timer.begun()
        outcomes: list[Outcome] = self._engine.verify(blocks, resolutions)
        if computed := self._engine.last_pass():
            self._timer.until_over(began_at_s, sum(cost.new_tokens for cost in computed))
        return outcomes


def slowed_drafter(engine: DrafterEngine, timer: PassTimer) -> DrafterEngine:
    return cast("DrafterEngine", _SlowedDrafter(engine, timer))


def slowed_verifier(engine: VerifierEngine, timer: PassTimer) -> VerifierEngine:
    return cast("VerifierEngine", _SlowedVerifier(engine, timer))
