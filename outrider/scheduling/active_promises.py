"""What the promises of active responses need, kept as their blocks arrive. No clock: time is an argument.

Each response counts with its last block: between two of its blocks it needs as much. A draft that may be cut counts as
it was ordered and, beside that, as it is cheapest for each of its tokens. Whether there is time for all depends on the
second; how long batches are to be on the first, as in short ones drafts are not cut. Prompts count as they have come
lately, as nobody knows how many tokens a response will have: seconds of prefixes per second, forgotten over
``_MEMORY_S``.
"""

from dataclasses import dataclass
from math import exp, inf

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import PendingVerification, Promised
from outrider.scheduling.promised_load import added_behind_s, added_s

_MEMORY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Need:
    """Of one response."""

    load: float
    least_load: float
    round_s: float


class ActivePromises:
    """Every response that is promised a speed, from its first block until it is over."""

    def __init__(self) -> None:
        """Nobody."""
        self._needs: dict[GenerationId, _Need] = {}
        self._prefix_load, self._counted_at_s = 0.0, 0.0

    def arrived(self, block: PendingVerification, prefix_tokens: int, now_s: float, cost_model: CostModel) -> None:
        """A block came, of which so many positions are a prefix; one without a promise needs nothing."""
        if block.tokens_per_s == 0.0:
            return
        if prefix_tokens:
            self._forget(now_s)
            prefix_s = added_s(VerifyCost(prefix_tokens, block.cost.cached_tokens), cost_model)
            self._prefix_load += prefix_s / _MEMORY_S
            return
        load, least_load = _loads(block, cost_model)
        self._needs[block.generation] = _Need(load, least_load, block.expected_tokens / block.tokens_per_s)

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


def _loads(block: PendingVerification, cost_model: CostModel) -> tuple[float, float]:
    """As it came, and with its draft cut to where that is least (``promised_load.load_of`` of each length)."""
    tokens_per_s, new, cached = block.tokens_per_s, block.cost.new_tokens, block.cost.cached_tokens
    constant_s = cost_model.predict_work_s(BatchWork())
    load = least = tokens_per_s * (added_behind_s(new, cached, constant_s, cost_model) / block.expected_tokens)
    rows, expected_tokens = new - len(block.survivals), 1.0
    for survival in block.survivals:
        cut = tokens_per_s * (added_behind_s(rows, cached, constant_s, cost_model) / expected_tokens)
        if cut < least:  # noqa: PLR1730 (twice as fast)
            least = cut
        rows, expected_tokens = rows + 1, expected_tokens + survival
    return load, least
