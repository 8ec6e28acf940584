"""Two drafter engines as one: the first drafts chains of token ids, the other all else.

The other is built in a thread of its own once an order needs it. Such orders wait for it, chains go on meanwhile. A
generation is in one engine at a time: it moves with the first order that its engine cannot carry out, and stays there,
as its KV would be computed again with each move.
"""

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from outrider.contracts.drafting import DraftAnswer, DrafterEngine, DraftRequest, DraftTerms, NeedsPrefix
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import KvUsage, OpenGeneration
from outrider.engines.drafter.base import check_grows

_LOOK_S = 0.02  # how long a step waits for the engine that is built, while no chain is drafted

_Opening = tuple[OpenGeneration, DraftTerms]


class _FirstEngine(DrafterEngine, Protocol):
    def hand_over(self, generation: GenerationId) -> _Opening | None: ...


class ChainsFirstDrafter:
    """``DrafterEngine`` for every order that either of its engines takes."""

    def __init__(
        self, chains: _FirstEngine, takes: Callable[[DraftRequest], bool], build: Callable[[], DrafterEngine]
    ) -> None:
        """``takes`` says which orders ``chains`` carries out. ``build`` is called once, in another thread."""
        self._chains, self._takes, self._build = chains, takes, build
        self._building: Future[DrafterEngine] | None = None
        self._other: DrafterEngine | None = None
        self._moved: set[GenerationId] = set()
        self._waiting: dict[GenerationId, tuple[_Opening, DraftRequest]] = {}  # to be moved once the other is built
        self._answers: list[DraftAnswer] = []

    @property
    def max_context_tokens(self) -> int:
        return self._chains.max_context_tokens

    @property
    def busy(self) -> bool:
        return bool(self._answers or self._waiting) or any(engine.busy for engine in self._engines)

    def started(self) -> tuple[GenerationId, ...]:
        return (*self._waiting, *(name for engine in self._engines for name in engine.started()))

    def open(self, request: OpenGeneration, terms: DraftTerms) -> None:
        self.close(request.generation)
        self._chains.open(request, terms)

    def submit(self, request: DraftRequest) -> None:
        check_grows(request.plan)
        name = request.generation
        if self._other is not None and name in self._moved:
            self._other.submit(request)
            return
        if (waiting := self._waiting.pop(name, None)) is None and self._takes(request):
            self._chains.submit(request)
            return
        opening = self._chains.hand_over(name) if waiting is None else waiting[0]
        if opening is None:
            self._answers.append(NeedsPrefix(name, request.round))
        elif self._other is not None:
            self._move(self._other, opening, request)
        else:
            self._waiting[name] = opening, request
            if self._building is None:
                self._building = ThreadPoolExecutor(1, thread_name_prefix="drafter").submit(self._build)

    def step(self, among: Collection[GenerationId] | None = None) -> list[DraftAnswer]:
        """Step both engines; see ``DrafterEngine.step``. The step of a waiting order raises why nothing was built."""
        waiting = [name for name in self._waiting if among is None or name in among]
        if waiting and (other := self._built()) is not None:
            for name in waiting:
                self._move(other, *self._waiting[name])
                del self._waiting[name]
        for engine in self._engines:
            if engine.busy:
                self._answers += engine.step(among)
        answers, self._answers = self._answers, []
        return answers

    def close(self, generation: GenerationId) -> None:
        self._waiting.pop(generation, None)
        self._moved.discard(generation)
        for engine in self._engines:
            engine.close(generation)

    def usage(self) -> KvUsage:
        """Return the use of both memories; a block is one position."""
        each = [engine.usage() for engine in self._engines]
        blocks = ("total_blocks", "used_blocks", "cached_blocks", "evicted_blocks")
        total, used, cached, evicted = (sum(getattr(one, name) * one.block_tokens for one in each) for name in blocks)
        generations, evictions = sum(one.generations for one in each), sum(one.evictions for one in each)
        return KvUsage(1, total, used, cached, generations, evictions, evicted_blocks=evicted)

    @property
    def _engines(self) -> tuple[DrafterEngine, ...]:
        return (self._chains,) if self._other is None else (self._chains, self._other)

    def _built(self) -> DrafterEngine | None:
        if self._other is None and self._building is not None:
            wait([self._building], 0.0 if self._chains.busy else _LOOK_S)
            if self._building.done():
                self._other = self._building.result()
        return self._other

    def _move(self, other: DrafterEngine, opening: _Opening, request: DraftRequest) -> None:
        other.open(*opening)
        self._moved.add(request.generation)
        other.submit(request)
