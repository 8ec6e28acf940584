"""Track the promised load of all active responses, updated as their blocks arrive. No clock: time is an argument.

Each response counts with its last block: until its next one it needs verifier time at the same rate. A draft that may
be cut is priced twice: as ordered (``load``), and at the length that makes its tokens cheapest (``least_load``).
``least_load`` decides whether all promises can be kept. ``load`` sets the batch length, as short batches cut no
drafts. Prompts are a rate, in seconds of prefill per second, that decays over ``_MEMORY_S``; they are not spread over
their responses' outputs, whose lengths are unknown.

The time between a response's rounds is a running mean. Its last round is short, because little is left to draft; taken
by itself it would shorten the batches of all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import exp, inf

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import CostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import PendingVerification, Promised
from outrider.scheduling.promised_load import added_s, each_added_s

_MEMORY_S = 30.0
_ROUND_WEIGHT = 0.05  # weight of a response's newest round in its mean


@dataclass(frozen=True, slots=True)
class _ResponseNeed:
    load: float
    least_load: float
    round_s: float
    memory_blocks: int


class ActivePromises:
    """Promised load of every response with a promised speed, from its first block to its end."""

    def __init__(self) -> None:
        self._needs: dict[GenerationId, _ResponseNeed] = {}
        self._prefix_load, self._counted_at_s = 0.0, 0.0
        self._evicted = set[GenerationId]()  # of these, those whose KV was evicted since their first block
        self.memory_blocks = 0  # KV of all, each as of its last block; a prefix that several share counts for each

    def arrived(self, blocks: Sequence[tuple[PendingVerification, int]], now_s: float, cost_model: CostModel) -> None:
        """Count blocks that arrived, each with its number of prefix positions. Best-effort blocks are ignored."""
        promised = [(block, prefix) for block, prefix in blocks if block.tokens_per_s > 0.0]
        self._forget(now_s)
        for block, prefix in promised:
            if prefix:
                self._prefix_load += added_s(VerifyCost(prefix, block.cost.cached_tokens), cost_model) / _MEMORY_S
        rounds = [block for block, prefix in promised if not prefix]
        if not rounds:
            return
        for block, load, least_load in zip(rounds, *_loads(rounds, cost_model), strict=True):
            round_s, before = block.expected_tokens / block.tokens_per_s, self._needs.get(block.generation)
            if before is not None:
                round_s = before.round_s + _ROUND_WEIGHT * (round_s - before.round_s)
            self._needs[block.generation] = _ResponseNeed(load, least_load, round_s, block.memory_blocks)
            self.memory_blocks += block.memory_blocks - (before.memory_blocks if before is not None else 0)

    def over(self, generation: GenerationId) -> None:
        need = self._needs.pop(generation, None)
        self._evicted.discard(generation)
        if need is not None:
            self.memory_blocks -= need.memory_blocks

    def evicted(self, generation: GenerationId) -> None:
        """Note that a response's KV was evicted; ignored of best effort."""
        if generation in self._needs:
            self._evicted.add(generation)

    def need_more_than(self, memory_blocks: int) -> bool:
        """Return whether their KV does not fit: the sum of it is larger, and some of it was evicted.

        The sum alone does not say so, as shared prefixes are held once.
        """
        return bool(self._evicted) and self.memory_blocks > memory_blocks

    def promised(self, now_s: float) -> Promised:
        self._forget(now_s)
        prefix_load, round_s, load, least_load = self._prefix_load, inf, 0.0, 0.0
        for need in self._needs.values():
            load += need.load
            least_load += need.least_load
            if need.round_s < round_s:  # noqa: PLR1730 (twice as fast)
                round_s = need.round_s
        return Promised(load + prefix_load, round_s, least_load + prefix_load)

    def _forget(self, now_s: float) -> None:
        self._prefix_load *= exp((self._counted_at_s - now_s) / _MEMORY_S)
        self._counted_at_s = now_s


def _loads(blocks: Sequence[PendingVerification], cost_model: CostModel) -> tuple[list[float], list[float]]:
    """Return two loads for each block: as it arrived, and at its cheapest draft length. Needs at least one block."""
    drafted = np.array([len(block.survivals) for block in blocks])
    new, cached, expected, speed = np.array(
        [(b.cost.new_tokens, b.cost.cached_tokens, b.expected_tokens, b.tokens_per_s) for b in blocks]
    ).T
    # One flat row holds every draft length of every block: 0, 1, ..., drafted of the first block, then of the next.
    ends = (drafted + 1).cumsum() - 1
    starts, owners = ends - drafted, np.arange(len(blocks)).repeat(drafted + 1)
    kept = np.arange(owners.size) - starts[owners]
    survivals = chain.from_iterable((0.0, *block.survivals) for block in blocks)
    # The running sum goes over all blocks; the value at a block's start is subtracted below.
    survived: npt.NDArray[np.float64] = np.fromiter(survivals, np.float64, owners.size).cumsum()
    tokens = 1.0 + survived - survived[starts][owners]  # 1: the correction or bonus token
    tokens[ends] = expected  # the full length has an estimate of its own
    added = each_added_s((new - drafted)[owners] + kept, cached[owners], cost_model)
    loads = speed[owners] * added / tokens
    return loads[ends].tolist(), np.minimum.reduceat(loads, starts).tolist()
