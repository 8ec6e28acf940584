"""Engines slowed down to the speed of other hardware, for experiments.

Results are the engine's own. A pass that took less time than it would there is waited out in the thread that computed
it.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import DraftAnswer, DrafterEngine, DraftRequest, DraftTerms
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, KvUsage, OpenGeneration, Outcome, Resolution, VerifierEngine


@dataclass(frozen=True, slots=True)
class EmulatedSpeed:
    """Shortest duration of a pass."""

    pass_s: float = 0.0
    row_s: float = 0.0  # in addition, for each position it computes

    def __bool__(self) -> bool:
        """Whether it slows anything down."""
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
        """Wait until a pass over ``rows`` positions would be over."""
        left_s = began_at_s + self._speed.pass_s + rows * self._speed.row_s - self._clock()
        if left_s > 0.0:
            self._sleep(left_s)


class SlowedDrafter:
    """``DrafterEngine`` that wraps another one; a step takes at least the emulated time of a pass."""

    def __init__(self, engine: DrafterEngine, waiting: PassTimer) -> None:
        self._engine, self._waiting = engine, waiting

    @property
    def max_context_tokens(self) -> int:
        return self._engine.max_context_tokens

    @property
    def busy(self) -> bool:
        return self._engine.busy

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        self._engine.open(request, terms)

    def submit(self, request: DraftRequest) -> None:
        self._engine.submit(request)

    def started(self) -> tuple[GenerationId, ...]:
        return self._engine.started()

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        began_at_s = self._waiting.begun()
        answers = self._engine.step(among)
        self._waiting.until_over(began_at_s, 0)
        return answers

    def close(self, generation: GenerationId) -> None:
        self._engine.close(generation)

    def usage(self) -> KvUsage:
        return self._engine.usage()


class SlowedVerifier:
    """``VerifierEngine`` that wraps another one; a pass takes at least the emulated time."""

    def __init__(self, engine: VerifierEngine, waiting: PassTimer) -> None:
        self._engine, self._waiting = engine, waiting

    @property
    def max_context_tokens(self) -> int:
        return self._engine.max_context_tokens

    def open(self, request: OpenGeneration) -> Future[Any] | None:
        return self._engine.open(request)

    def prepare(
        self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()
    ) -> Mapping[GenerationId, Future[Any]]:
        return self._engine.prepare(blocks, resolutions)

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        """Verify as the engine; only calls that ran a pass are slowed down."""
        began_at_s = self._waiting.begun()
        outcomes = self._engine.verify(blocks, resolutions)
        if computed := self._engine.last_pass():
            self._waiting.until_over(began_at_s, sum(cost.new_tokens for cost in computed))
        return outcomes

    def committed(self, generation: GenerationId) -> Sequence[int]:
        return self._engine.committed(generation)

    def due(self, generation: GenerationId, at_s: float) -> None:
        self._engine.due(generation, at_s)

    def evicted(self) -> tuple[tuple[GenerationId, int], ...]:
        return self._engine.evicted()

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        self._engine.close(generation, keep_cache=keep_cache)

    def usage(self) -> KvUsage:
        return self._engine.usage()

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self._engine.last_pass()
