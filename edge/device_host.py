"""A host whose generations nobody else looks after: no fleet asks this device what it holds, and has it forget."""

import time
from collections.abc import Callable
from typing import Any

from edge.host import DrafterHost
from outrider.contracts.drafting import DraftTerms
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import OpenGeneration
from outrider.wire.replies import Answer

MOST_GENERATIONS = 256
IDLE_S = 600.0  # a generation of which nothing is heard for as long is closed; it is opened again if it goes on


class DeviceHost(DrafterHost):
    def __init__(self, *arguments: Any, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(*arguments)
        self._clock = clock
        self._used_at_s: dict[GenerationId, float] = {}  # the longest unused first

    async def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        """As ``DrafterHost``. Where there are many generations the one longest unused is closed."""
        self._use(request.generation)
        while len(self._used_at_s) > MOST_GENERATIONS:
            await self.close(next(iter(self._used_at_s)))
        await super().open(request, terms)

    async def exchange(self, generation: GenerationId, order: bytes) -> Answer:
        if generation in self._used_at_s:
            self._use(generation)
        return await super().exchange(generation, order)

    async def close(self, generation: GenerationId) -> None:
        self._used_at_s.pop(generation, None)
        await super().close(generation)

    async def close_unused(self) -> None:
        """Close generations of coordinators that left without a word."""
        before_s = self._clock() - IDLE_S
        for generation in [name for name, used_at_s in self._used_at_s.items() if used_at_s < before_s]:
            await self.close(generation)

    def _use(self, generation: GenerationId) -> None:
        self._used_at_s.pop(generation, None)
        self._used_at_s[generation] = self._clock()
