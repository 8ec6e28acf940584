"""What the promises of active responses need, kept as their blocks arrive. No clock: time is an argument.

Each response counts with its last block: between two of its blocks it needs as much. A draft that may be cut counts as
it was ordered and, beside that, as it is cheapest for each of its tokens. Whether there is time for all depends on the
second; how long batches are to be on the first, as in short ones drafts are not cut. Prompts count as they have come
lately, as nobody knows how many tokens a response will have: seconds of prefixes per second, forgotten over
``_MEMORY_S``.

How long a response's rounds may take is a mean of them: its last one is short, as nothing is left to draft, and one
response that ends must not make the batches of all others short.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import exp, inf

import numpy as np

from outrider.contracts.cost import CostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import PendingVerification, Promised
from outrider.scheduling.promised_load import added_s, each_added_s
from outrider.scheduling.waiting_arrays import Floats

_MEMORY_S = 30.0
_ROUND_WEIGHT = 0.05  # of a response's newest round in the mean of them


@dataclass(frozen=True, slots=True)
class _ResponseNeed:
    load: float
    least_load: float
    round_s: float


class ActivePromises:
    """Every response that is promised a speed, from its first block until it is over."""

    def __init__(self) -> None:
        self._needs: dict[GenerationId, _ResponseNeed] = {}
        self._prefix_load, self._counted_at_s = 0.0, 0.0

    def arrived(self, blocks: Sequence[tuple[PendingVerification, int]], now_s: float, cost_model: CostModel) -> None:
        """Blocks came, each with so many positions that are a prefix; those without a promise need nothing."""
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
            self._needs[block.generation] = _ResponseNeed(load, least_load, round_s)

    def over(self, generation: GenerationId) -> None:
        """It needs nothing any more."""
        self._needs.pop(generation, None)

    def promised(self, now_s: float) -> Promised:
        """Of all of them together."""
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
    """What each needs as it came, and with its draft cut where that is cheapest. At least one block."""
    drafted = np.array([len(block.survivals) for block in blocks])
    new, cached, expected, speed = np.array(
        [(b.cost.new_tokens, b.cost.cached_tokens, b.expected_tokens, b.tokens_per_s) for b in blocks]
    ).T
    ends = (drafted + 1).cumsum() - 1  # of each block's lengths, 0 to all that was drafted, in one row of all
    starts, owners = ends - drafted, np.arange(len(blocks)).repeat(drafted + 1)
    kept = np.arange(owners.size) - starts[owners]
    survivals = chain.from_iterable((0.0, *block.survivals) for block in blocks)
    survived: Floats = np.fromiter(survivals, np.float64, owners.size).cumsum()
    tokens = 1.0 + survived - survived[starts][owners]
    tokens[ends] = expected
    added = each_added_s((new - drafted)[owners] + kept, cached[owners], cost_model)
    loads = speed[owners] * added / tokens
    return loads[ends].tolist(), np.minimum.reduceat(loads, starts).tolist()
