"""Measure batches on a live verifier engine, to fit a cost model to their times.

A cached position is a committed one that is resident: the block's generation was opened, and its prompt computed,
before. A block without any opens its generation with a prompt of its new positions. No prompt is used twice, and an
engine that finds a part of one in its prefix cache all the same ends the profile: it would be measured too fast.
"""

from collections.abc import Callable, Sequence

import numpy as np

from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import OutriderError
from outrider.contracts.verifying import Block, Outcome, Verified, VerifierEngine
from outrider.costs.driver import GREEDY, GenerationDriver
from outrider.costs.fit_figures import BatchSample
from outrider.costs.profiling_plan import ProfilingPlan


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
        """A prompt of so many tokens, which begins with its number; it was never taken before."""
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


class BatchRunner:
    """Builds batches, times their passes, and takes them down again."""

    def __init__(self, engine: VerifierEngine, prompts: UniquePrompts, now_s: Callable[[], float]) -> None:
        """``now_s`` reads a clock."""
        self._engine = engine
        self._prompts = prompts
        self._now_s = now_s
        self._driver = GenerationDriver(engine, GREEDY)
        self._opened = 0

    def run(self, blocks: Sequence[VerifyCost], warmups: int = 0) -> float:
        """Seconds of one pass over such a batch, after ``warmups`` passes over others like it that do not count.

        Raises:
            ProfilingError: a pass did not decide every block, or used KV it should not have had.
            RoundFailedError: the engine cannot decide a block.
        """
        warm = {i: self._resident(block, warmups) for i, block in enumerate(blocks) if block.cached_tokens}
        seconds = 0.0
        for _ in range(warmups + 1):
            cold = {i: self._open(block.new_tokens) for i, block in enumerate(blocks) if not block.cached_tokens}
            drafts = [self._prompts.draft(block.new_tokens - 1) if block.cached_tokens else () for block in blocks]
            names = warm | cold
            seconds = self._pass([self._driver.block(names[i], draft) for i, draft in enumerate(drafts)])
            self._driver.close(cold.values())
        self._driver.close(warm.values())
        return seconds

    def _resident(self, block: VerifyCost, passes_before: int) -> str:
        """A generation whose resident prefix has the wanted length when it counts: each pass commits one token."""
        name = self._open(max(1, block.cached_tokens - passes_before))
        waiting = [self._driver.block(name)]
        while waiting:
            waiting = self._commit(waiting, self._engine.verify(waiting))
        return name

    def _open(self, prompt_tokens: int) -> str:
        self._opened += 1
        name = f"profile-{self._opened}"
        self._driver.open(name, self._prompts.take(prompt_tokens))
        return name

    def _pass(self, batch: Sequence[Block]) -> float:
        began_at_s = self._now_s()
        outcomes = self._engine.verify(batch)
        seconds = self._now_s() - began_at_s
        if self._commit(batch, outcomes):
            raise ProfilingError("needs a pass that decides every block, found Unfinished ones")
        return seconds

    def _commit(self, batch: Sequence[Block], outcomes: Sequence[Outcome]) -> list[Block]:
        """The blocks that are not decided yet."""
        cached = sum(outcome.cached_tokens for outcome in outcomes if isinstance(outcome, Verified))
        if cached:
            raise ProfilingError(f"needs a prompt that is not in the cache, found {cached} tokens of it")
        return self._driver.commit(batch, outcomes)


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
        BatchSample(one.kind, one.blocks, tuple(times)) for one, times in zip(configurations, seconds, strict=True)
    ]
    return samples[: len(plan.train)], samples[len(plan.train) :]
