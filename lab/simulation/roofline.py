"""Roofline cost model of a batch on a GPU that was not measured: the slower of arithmetic and memory traffic.

    T = max(FLOPs / (peak FLOP/s * share), bytes / (peak bytes/s * share)) + a fixed part
    FLOPs = 2 * matrix weights * new positions + 4 * layers * heads * head_dim * interactions
    bytes = weights, once a pass + KV of the cached positions (read) and of the new ones (written)

This models hardware and measures nothing; results must say so. The two shares are what good kernels reach of a data
sheet's peaks. Measured coefficients (``outrider profile``) replace it.

Source: Williams, Waterman, Patterson 2009 (roofline); the sums are those of WISP eq. 18.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import Seconds, VerifyCost, work_of

COMPUTE_SHARE = 0.6  # of peak arithmetic: large matrix products on these cards reach 0.5 to 0.7
MEMORY_SHARE = 0.8  # of peak bandwidth: long reads reach 0.75 to 0.9
FIXED_S = 2e-3  # kernel launches and sampling of one pass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder with grouped-query attention and a gated feed-forward part, by its configuration file."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    tied: bool = False  # whether embedding and head are one matrix
    bytes_per_weight: float = 2.0
    bytes_per_kv_value: float = 2.0

    @property
    def matrix_weights(self) -> int:
        """Weights that every new position is multiplied with; the embedding is not multiplied."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.feed_forward) + self.hidden * self.vocab

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights; norms are too small to count."""
        embedding = 0 if self.tied else self.hidden * self.vocab
        return self.bytes_per_weight * (self.matrix_weights + embedding)

    @property
    def kv_bytes_per_token(self) -> float:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_kv_value


@dataclass(frozen=True, slots=True)
class Hardware:
    """A GPU by its data sheet, dense 16-bit arithmetic."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class RooflineCostModel:
    """A cost model (``outrider.contracts.cost.CostModel``) of a model on a GPU."""

    model: ModelShape
    hardware: Hardware
    compute_share: float = COMPUTE_SHARE
    memory_share: float = MEMORY_SHARE
    fixed_s: float = FIXED_S
    _slopes: tuple[float, float, float, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Precompute seconds of arithmetic by new position and interaction, and of traffic by weights and position."""
        shape = self.model
        flops_per_s, bytes_per_s = (
            self.hardware.flops_per_s * self.compute_share,
            self.hardware.bytes_per_s * self.memory_share,
        )
        slopes = (
            2.0 * shape.matrix_weights / flops_per_s,
            4.0 * shape.layers * shape.heads * shape.head_dim / flops_per_s,
            shape.bytes_per_weight * shape.matrix_weights / bytes_per_s,
            shape.kv_bytes_per_token / bytes_per_s,
        )
        object.__setattr__(self, "_slopes", slopes)

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        return self.predict_work_s(work_of(batch))

    def predict_work_s(self, work: tuple[int, int, int]) -> float:
        per_new, per_interaction, weights_s, per_token = self._slopes
        new, interactions, cached = work
        compute_s = per_new * new + per_interaction * interactions
        return max(compute_s, weights_s + per_token * (cached + new)) + self.fixed_s

    def predict_works_s(self, works: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Predict many: ``[n, 3]`` new tokens, interactions and cached tokens; return ``[n]`` seconds."""
        per_new, per_interaction, weights_s, per_token = self._slopes
        new, interactions, cached = works.T
        seconds: npt.NDArray[np.float64] = np.maximum(
            per_new * new + per_interaction * interactions, weights_s + per_token * (cached + new)
        )
        return seconds + self.fixed_s

    def guard_s(self, predicted_s: Seconds) -> Seconds:
        """None: a data sheet says nothing of spread."""
        return 0.0 * predicted_s

    def kv_tokens(self) -> int:
        """Positions whose KV fits beside the weights; 0 where not even the weights fit."""
        free = self.hardware.memory_bytes - self.model.weight_bytes
        return max(0, int(free / self.model.kv_bytes_per_token))


# The models' public config.json.
MODELS: Mapping[str, ModelShape] = MappingProxyType(
    {
        "qwen3-32b": ModelShape(64, 5120, 64, 8, 128, 25_600, 151_936),
        "qwen3-14b": ModelShape(40, 5120, 40, 8, 128, 17_408, 151_936),
        "qwen3-8b": ModelShape(36, 4096, 32, 8, 128, 12_288, 151_936),
        "qwen3-4b": ModelShape(36, 2560, 32, 8, 128, 9_728, 151_936, tied=True),
        "qwen3-1.7b": ModelShape(28, 2048, 16, 8, 128, 6_144, 151_936, tied=True),
        "qwen3-0.6b": ModelShape(28, 1024, 16, 8, 128, 3_072, 151_936, tied=True),
        "llama-3.1-8b": ModelShape(32, 4096, 32, 8, 128, 14_336, 128_256),
        "smollm2-135m": ModelShape(30, 576, 9, 3, 64, 1_536, 49_152, tied=True),
    }
)

# NVIDIA's data sheets: dense bf16 on tensor cores (half of what is printed "with sparsity"), HBM bandwidth and size.
HARDWARE: Mapping[str, Hardware] = MappingProxyType(
    {
        "a100-80gb": Hardware("A100 SXM 80GB", 312e12, 2.039e12, 80e9),
        "h100": Hardware("H100 SXM 80GB", 989.4e12, 3.35e12, 80e9),
        "h200": Hardware("H200 SXM 141GB", 989.4e12, 4.8e12, 141e9),
        "l4": Hardware("L4 24GB", 121e12, 0.3e12, 24e9),
    }
)
