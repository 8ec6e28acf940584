"""Measure the times of batches on a live verifier engine, to fit a cost model to them.

A block's cached positions must be committed and resident: its generation was opened and its prompt computed before. A
block without cached positions opens its generation with a prompt of its new positions. No prompt is used twice. If the
engine still finds part of one in its prefix cache, profiling fails, as the measured time would be too short.
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
    """The engine did not run the batch that was to be measured, or a prompt was repeated."""


class UniquePrompts:
    """Generate prompts of random token ids, no two of which begin alike."""

    def __init__(self, vocab_size: int, seed: int, told_apart_tokens: int = 16) -> None:
        """Start the generator; prompts with equal first ``told_apart_tokens`` (an engine's KV block) count as equal."""
        self._vocab_size = vocab_size
        self._rng = np.random.default_rng(seed)
        self._told_apart_tokens = told_apart_tokens
        self._seen: set[tuple[int, ...]] = set()

    def take(self, length: int) -> tuple[int, ...]:
        """Return a new prompt of ``length`` tokens, whose first token is its number."""
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
        """Return random tokens that need not be unique."""
        return tuple(self._rng.integers(self._vocab_size, size=length).tolist())


class BatchRunner:
    def __init__(self, engine: VerifierEngine, prompts: UniquePrompts, now_s: Callable[[], float]) -> None:
        self._engine = engine
        self._prompts = prompts
        self._now_s = now_s
        self._driver = GenerationDriver(engine, GREEDY)
        self._opened = 0

    def run(self, blocks: Sequence[VerifyCost], warmups: int = 0) -> float:
        """Return the seconds of one pass over the batch, after ``warmups`` untimed passes over batches like it.

        Raises:
            ProfilingError: a pass did not decide every block, or used KV that should not have been cached.
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
        """Open a generation with the wanted cached prefix in the timed pass; each pass before commits one token."""
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
    """Time each configuration ``repeats`` times, in another order each time; return training and test samples.

    ``warmups`` untimed passes come before the first timed one of each; ``on_batch`` is called after each timed pass.
    """
    configurations = (*plan.train, *plan.test)
    seconds: list[list[float]] = [[] for _ in configurations]
    rng = np.random.default_rng(seed)
    runner.run(max(configurations, key=lambda one: one.new_tokens).blocks)  # warms up the process: memory, kernels
    for repeat in range(repeats):
        for index in rng.permutation(len(configurations)).tolist():
            seconds[index].append(runner.run(configurations[index].blocks, 0 if repeat else warmups))
            on_batch()
    samples = [
        BatchSample(one.kind, one.blocks, tuple(times)) for one, times in zip(configurations, seconds, strict=True)
    ]
    return samples[: len(plan.train)], samples[len(plan.train) :]
