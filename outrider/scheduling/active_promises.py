"""What the promises of active responses need, kept as their blocks arrive. No clock: time is an argument.

Each response counts with its last block: between two of its blocks it needs as much. A draft that may be cut counts as
it is cheapest for each of its tokens, which is how it is verified where time is short. Prompts count as they have come
lately, as nobody knows how many tokens a response will have: seconds of prefixes per second, forgotten over
``_MEMORY_S``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, inf

from outrider.contracts.cost import CostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import PendingVerification, Promised
from outrider.scheduling.promised_load import PromisedPace, added_s, load_of

_MEMORY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Need:
    """Of one response."""

    load: float
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
        load = min(load_of(pace, cost_model) for pace in _paces(block))
        self._needs[block.generation] = _Need(load, block.expected_tokens / block.tokens_per_s)

    def over(self, generation: GenerationId) -> None:
        """It needs nothing any more."""
        self._needs.pop(generation, None)

    def promised(self, now_s: float) -> Promised:
        """Of all of them together."""
        self._forget(now_s)
        needs = self._needs.values()
        load = sum(need.load for need in needs) + self._prefix_load
        return Promised(load, min((need.round_s for need in needs), default=inf))

    def _forget(self, now_s: float) -> None:
        self._prefix_load *= exp((self._counted_at_s - now_s) / _MEMORY_S)
        self._counted_at_s = now_s


def _paces(block: PendingVerification) -> Iterator[PromisedPace]:
    """As it came, and with its draft cut to each length."""
    yield PromisedPace(block.tokens_per_s, block.expected_tokens, block.cost)
    rows, expected_tokens = block.cost.new_tokens - len(block.survivals), 1.0
    for survival in block.survivals:
        yield PromisedPace(block.tokens_per_s, expected_tokens, VerifyCost(rows, block.cost.cached_tokens))
        rows, expected_tokens = rows + 1, expected_tokens + survival
