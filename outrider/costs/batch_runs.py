"""Measure batches on a live verifier engine, to fit a cost model to their times.

A cached position is a committed one that is resident: the block's generation was opened, and its prompt computed,
before. A block without any opens its generation with a prompt of its new positions. No prompt is used twice, and an
engine that finds a part of one in its prefix cache all the same ends the profile: it would be measured too fast.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import OutriderError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, OpenGeneration, Unfinished, Verified, VerifierEngine
from outrider.costs.fit_figures import BatchSample
from outrider.costs.profiling_plan import ProfilingPlan

_GREEDY = SamplingParams(temperature=0.0)


class ProfilingError(OutriderError):
    """The engine did not do what was to be measured, or a prompt came twice."""


class UniquePrompts:
    """Random token ids, of which no two prompts share a beginning."""

    def __init__(self, vocab_size: int, seed: int, told_apart_tokens: int = 16) -> None:
        """``told_apart_tokens``: prompts that agree on so many first tokens (an engine's KV block) are the same."""
        self._vocab_size = vocab_size
        self._rng = np.random.default_rng(seed)
        self._told_apart_tokens = told_apart_tokens
        self._seen: set[tuple[int, ...]] = set()

    def take(self, length: int) -> tuple[int, ...]:
        """A prompt of so many tokens, which begins with its number.

        Raises:
            ProfilingError: it was used before.
        """
        first = len(self._seen) % self._vocab_size
        prompt = (first, *self.draft(length - 1))
        beginning = prompt[: self._told_apart_tokens]
        if beginning in self._seen:
            raise ProfilingError(
                f"needs prompts that were never used, found {beginning} twice; use a larger vocabulary"
            )
        self._seen.add(beginning)
        return prompt

    def draft(self, length: int) -> tuple[int, ...]:
        """So many random tokens that need not be unique."""
        return tuple(self._rng.integers(self._vocab_size, size=length).tolist())


@dataclass(slots=True)
class _Open:
    """A generation of a batch: its committed tokens, and the positions each pass computes."""

    name: str
    tokens: list[int]
    new_tokens: int


class BatchRunner:
    """Builds batches, times their passes, and takes them down again."""

    def __init__(self, engine: VerifierEngine, prompts: UniquePrompts, now_s: Callable[[], float]) -> None:
        """``now_s`` reads a clock."""
        self._engine = engine
        self._prompts = prompts
        self._now_s = now_s
        self._opened = 0
        self._round = 0

    def run(self, blocks: Sequence[VerifyCost], warmups: int = 0) -> float:
        """Seconds of one pass over such a batch, after ``warmups`` passes over others like it that do not count.

        Raises:
            ProfilingError: a pass did not decide every block, or used KV it should not have had.
        """
        warm = {i: self._resident(block, warmups) for i, block in enumerate(blocks) if block.cached_tokens}
        seconds = 0.0
        for _ in range(warmups + 1):
            cold = {i: self._open(block.new_tokens, 0) for i, block in enumerate(blocks) if not block.cached_tokens}
            seconds = self._pass([warm[i] if i in warm else cold[i] for i in range(len(blocks))])
            self._close(cold.values())
        self._close(warm.values())
        return seconds

    def _resident(self, block: VerifyCost, passes_before: int) -> _Open:
        """A generation whose resident prefix has the wanted length when it counts: each pass commits one token."""
        opened = self._open(max(1, block.cached_tokens - passes_before), block.new_tokens)
        prefix, outcome = self._block(opened, ()), None
        while not isinstance(outcome, Verified):
            [outcome] = self._engine.verify([prefix])
            if not isinstance(outcome, Verified | Unfinished):
                raise ProfilingError(f"needs a computed prefix, found {outcome}")
        self._commit(opened, prefix, outcome)
        return opened

    def _open(self, prompt_tokens: int, new_tokens: int) -> _Open:
        self._opened += 1
        opened = _Open(f"profile-{self._opened}", list(self._prompts.take(prompt_tokens)), new_tokens)
        self._engine.open(OpenGeneration(opened.name, tuple(opened.tokens), _GREEDY))
        return opened

    def _pass(self, batch: Sequence[_Open]) -> float:
        blocks = [self._block(one, self._prompts.draft(max(0, one.new_tokens - 1))) for one in batch]
        began_at_s = self._now_s()
        outcomes = self._engine.verify(blocks)
        seconds = self._now_s() - began_at_s
        for one, block, outcome in zip(batch, blocks, outcomes, strict=True):
            if not isinstance(outcome, Verified):
                raise ProfilingError(f"needs a pass that decides every block, found {outcome}")
            self._commit(one, block, outcome)
        return seconds

    def _block(self, opened: _Open, draft: tuple[int, ...]) -> Block:
        self._round += 1
        return Block(
            generation=opened.name,
            round=self._round,
            position=len(opened.tokens),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, opened.tokens),
            draft=draft,
            rule=AcceptanceRule.GREEDY,
        )

    def _commit(self, opened: _Open, block: Block, outcome: Verified) -> None:
        if outcome.cached_tokens:
            raise ProfilingError(f"needs a prompt that is not in the cache, found {outcome.cached_tokens} tokens of it")
        assert outcome.next_token is not None, "every block wants its bonus token"
        opened.tokens += [*(block.draft[node] for node in outcome.accepted_path), outcome.next_token]

    def _close(self, batch: Iterable[_Open]) -> None:
        for one in batch:
            self._engine.close(one.name, keep_cache=False)


def measure(
    runner: BatchRunner,
    plan: ProfilingPlan,
    *,
    repeats: int,
    warmups: int,
    seed: int,
    on_batch: Callable[[], object] = lambda: None,
) -> tuple[list[BatchSample], list[BatchSample]]:
    """Run everything ``repeats`` times, each time in another order: the samples to fit to, and those to test with.

    Args:
        runner: of the engine.
        plan: what is run.
        repeats: of each configuration, each a pass that is timed.
        warmups: passes before the first of them, which are not.
        seed: of the orders.
        on_batch: called after each.

    Raises:
        ProfilingError: as ``BatchRunner.run``.
    """
    configurations = (*plan.train, *plan.test)
    seconds: list[list[float]] = [[] for _ in configurations]
    rng = np.random.default_rng(seed)
    runner.run(max(configurations, key=lambda one: one.new_tokens).blocks)  # the process's own warm-up: memory, kernels
    for repeat in range(repeats):
        for index in rng.permutation(len(configurations)).tolist():
            seconds[index].append(runner.run(configurations[index].blocks, 0 if repeat else warmups))
            on_batch()
    samples = [
        BatchSample(one.regime, one.blocks, tuple(times)) for one, times in zip(configurations, seconds, strict=True)
    ]
    return samples[: len(plan.train)], samples[len(plan.train) :]
