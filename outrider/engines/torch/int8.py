"""Int8 linear layers for draft models: half the bytes of bfloat16, with exact integer sums.

Each row of weights and each row of inputs has its own scale, so a row's result does not depend on the batch. All other
layers stay in float32. Not for targets: quantisation would change the distribution that is served.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from outrider.engines.torch.replacing import Bias, WeightAndBias, replace_linears
from outrider.models.model_classes import PreTrainedModel

_QUANTISED: Any = torch.ops.quantized
_MOST = 127
_ZERO = 128  # zero point: the kernel's inputs are unsigned
_LEAST_SCALE = 1e-30  # keeps a row of zeros from a division by 0


@cache
def has_int8() -> bool:
    """Whether this CPU sums products of bytes without saturation (VNNI on x86), tried with the largest sums."""
    if "x86" not in torch.backends.quantized.supported_engines:
        return False
    extreme = torch.full((4, 64), float(_MOST))
    product = _multiplied(extreme, _packed([(extreme, None)]).weight)
    return bool((product == 64 * _MOST * _MOST).all())


def quantise_linears(model: PreTrainedModel) -> None:
    """Replace all linear layers of a float32 model on a CPU, in place."""
    replace_linears(model, _packed)


@dataclass(frozen=True, slots=True)
class _Int8:
    """One product: ``[..., inputs] -> [..., sum(widths)]``, float32."""

    weight: Any  # the kernel's layout
    bias: Bias
    widths: tuple[int, ...]

    def __call__(self, rows: Tensor) -> Tensor:
        scales = (rows.abs().amax(-1, keepdim=True) * (1.0 / _MOST)).clamp_min_(_LEAST_SCALE)
        product = _multiplied(rows / scales, self.weight).mul_(scales)
        return product if self.bias is None else product.add_(self.bias)


def _packed(layers: Sequence[WeightAndBias]) -> _Int8:
    weight = torch.cat([weight for weight, _ in layers]).float()
    biases = [bias for _, bias in layers if bias is not None]
    scales = (weight.abs().amax(-1) / _MOST).clamp_min(_LEAST_SCALE)
    codes = (weight / scales[:, None]).round().to(torch.int8)
    with warnings.catch_warnings():  # deprecations announced for later versions of torch
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        quantised = torch._make_per_channel_quantized_tensor(codes, scales.double(), zeros, 0)  # noqa: SLF001
        packed = _QUANTISED.linear_prepack(quantised, None)
    return _Int8(packed, torch.cat(biases) if biases else None, tuple(len(weight) for weight, _ in layers))


def _multiplied(rows: Tensor, weight: Any) -> Tensor:
    """Quantise rows, which are scaled to -127 .. 127 already, and multiply; returns float32."""
    product: Tensor = _QUANTISED.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, _ZERO, weight)
    return product
