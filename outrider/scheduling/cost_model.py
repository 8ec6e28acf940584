"""How long a verification batch takes: the linear model of WISP (eq. 18, 19), corrected online by what is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Protocol

_TOLD_APART = 16


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """What the time of one block depends on, in positions."""

    new_tokens: int  # positions to compute
    cached_tokens: int  # positions whose KV is only read


class CostModel(Protocol):
    """Predicts batch times."""

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        """Seconds of one forward pass over this batch."""
        ...


@dataclass(frozen=True, slots=True)
class LinearCostModel:
    """T = a * sum new + b_compute * sum (total * new) + b_read * sum cached + c  (WISP eq. 18, 19).

    The engine's measured times correct it by a factor for each number of new positions in a batch (powers of two from
    ``_TOLD_APART`` on): small matrix products take times that are no linear function of their rows. A number that was
    never measured takes the factor of the nearest one that was.

    Attributes:
        scales: ascending numbers of new positions with the factor measured at each.
    """

    seconds_per_token: float
    seconds_per_interaction: float
    seconds_per_cached_token: float
    seconds_per_batch: float
    scales: tuple[tuple[int, float], ...] = ()

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        """Seconds of one forward pass over this batch."""
        new = sum(cost.new_tokens for cost in batch)
        return self._scale(new) * (self.seconds_per_batch + sum(map(self._block_s, batch)))

    def predict_alike_s(self, block: VerifyCost, blocks: float) -> float:
        """Seconds of one forward pass over so many blocks like this one; a mean need not be a whole number."""
        return self._scale(blocks * block.new_tokens) * (self.seconds_per_batch + blocks * self._block_s(block))

    def corrected(self, batch: Sequence[VerifyCost], measured_s: float, weight: float = 0.2) -> "LinearCostModel":
        """The model after seeing one batch: its factor moved by ``weight`` towards what was measured, or set to it."""
        new = _told_apart(sum(cost.new_tokens for cost in batch))
        known, predicted_s = dict(self.scales), self.predict_s(batch)
        if predicted_s <= 0.0 or measured_s <= 0.0:
            return self
        moved = 1.0 + (weight if new in known else 1.0) * (measured_s / predicted_s - 1.0)
        known[new] = self._scale(new) * moved
        return replace(self, scales=tuple(sorted(known.items())))

    def _block_s(self, cost: VerifyCost) -> float:
        """One block's part of a pass, uncorrected."""
        new, cached = cost.new_tokens, cost.cached_tokens
        return (
            self.seconds_per_token * new
            + self.seconds_per_interaction * (new + cached) * new
            + self.seconds_per_cached_token * cached
        )

    def _scale(self, new: float) -> float:
        if not self.scales:
            return 1.0
        wanted = log2(_told_apart(new))
        return min(self.scales, key=lambda entry: abs(log2(entry[0]) - wanted))[1]


def _told_apart(new: float) -> int:
    """The number of new positions under which a batch's time is remembered."""
    return max(1, round(new)) if new <= _TOLD_APART else 2 ** ceil(log2(new))


# The embedded target in float32 on one CPU thread (docs/experiments.md); measured factors adapt it to anything else.
DEFAULT_COST_MODEL = LinearCostModel(
    seconds_per_token=4.5e-3, seconds_per_interaction=2.0e-7, seconds_per_cached_token=8.0e-6, seconds_per_batch=45e-3
)
