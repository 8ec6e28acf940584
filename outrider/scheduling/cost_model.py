"""How long a verification batch takes: the linear model of WISP (eq. 18, 19), and its scale learned online."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol


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

    ``scale`` multiplies the whole and follows the engine's measured times, so that rough coefficients are usable.
    """

    seconds_per_token: float
    seconds_per_interaction: float
    seconds_per_cached_token: float
    seconds_per_batch: float
    scale: float = 1.0

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        """Seconds of one forward pass over this batch."""
        new = sum(cost.new_tokens for cost in batch)
        cached = sum(cost.cached_tokens for cost in batch)
        interactions = sum((cost.new_tokens + cost.cached_tokens) * cost.new_tokens for cost in batch)
        return self.scale * (
            self.seconds_per_token * new
            + self.seconds_per_interaction * interactions
            + self.seconds_per_cached_token * cached
            + self.seconds_per_batch
        )

    def corrected(self, batch: Sequence[VerifyCost], measured_s: float, weight: float = 0.2) -> "LinearCostModel":
        """The model after seeing one batch: its scale moved by ``weight`` towards what was measured."""
        predicted_s = self.predict_s(batch)
        if predicted_s <= 0.0 or measured_s <= 0.0:
            return self
        return replace(self, scale=self.scale * (1.0 + weight * (measured_s / predicted_s - 1.0)))


# The embedded target in float32 on one CPU thread (docs/experiments.md); the scale adapts it to anything else.
DEFAULT_COST_MODEL = LinearCostModel(
    seconds_per_token=4.5e-3, seconds_per_interaction=2.0e-7, seconds_per_cached_token=8.0e-6, seconds_per_batch=45e-3
)
