"""Batch-invariant linear layers: a row's bits do not depend on the number of rows.

On CPUs oneDNN packs the weights. They are packed once, and the unpacked ones are freed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from outrider.engines.torch.replacing import Bias, WeightAndBias, replace_linears
from outrider.engines.torch.sizes import LARGEST, Sizes, agreeing
from outrider.models.model_classes import PreTrainedModel

_ONEDNN: Any = torch.ops.mkldnn  # used by torch's compiler; torch has no public name for it
_USUAL_ROWS = 32  # number of rows that the packed layout is made for


def computes_bfloat16() -> bool:
    """Whether this CPU computes bfloat16 (AMX, AVX-512 bf16), or oneDNN emulates it with AVX-512."""
    return bool(_ONEDNN._is_mkldnn_bf16_supported())  # noqa: SLF001


def can_pack(model: PreTrainedModel) -> bool:
    """Whether packing applies: a bfloat16 model on a CPU that computes in it."""
    return model.device.type == "cpu" and model.dtype is torch.bfloat16 and computes_bfloat16()


@dataclass(frozen=True, slots=True)
class LinearKernel:
    """Computes ``rows @ weight.T + bias``, over a weight in a layout of its own."""

    laid_out: Callable[[Tensor], Tensor]
    multiplied: Callable[[Tensor, Tensor, Bias], Tensor]


def pack_linears(model: PreTrainedModel, sizes: Sizes | None = None, kernel: LinearKernel | None = None) -> None:
    """Replace all linear layers of a model in place: a bfloat16 one on a CPU that computes in it.

    ``sizes``: numbers of rows to compute at once; None: find them by a trial for each shape.
    """
    trials = _Trials(sizes, kernel or PACKED)
    replace_linears(model, lambda layers: _packed(layers, trials))


def unpackable_weights(model: PreTrainedModel) -> list[str]:
    """Return the names of matrices outside linear layers and embeddings, whose products may not be batch-invariant."""
    known = (nn.Linear, Conv1D, nn.Embedding)
    packed = {id(module.weight) for module in model.modules() if isinstance(module, known)}
    return [name for name, weight in model.named_parameters() if weight.ndim > 1 and id(weight) not in packed]


@dataclass(frozen=True, slots=True)
class _Packed:
    """One product: ``[..., inputs] -> [..., sum(widths)]``."""

    weight: Tensor  # in the kernel's layout
    bias: Bias
    widths: tuple[int, ...]  # outputs of the layers it replaces
    sizes: Sizes
    multiplied: Callable[[Tensor, Tensor, Bias], Tensor]

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, rows.shape[-1])
        found = [self._piece(flat[p.first : p.last], p.size) for p in self.sizes.pieces(len(flat))]
        whole = found[0] if len(found) == 1 else torch.cat([flat.new_empty(0, sum(self.widths)), *found])
        return whole.view(*rows.shape[:-1], whole.shape[-1])

    def _piece(self, rows: Tensor, size: int) -> Tensor:
        count = len(rows)
        if count < size:
            rows = torch.cat([rows, rows[-1:].expand(size - count, -1)])
        return self.multiplied(rows, self.weight, self.bias)[:count]


@dataclass(slots=True)
class _Trials:
    """Agreeing sizes by shape of weight, tried once each, unless they are given."""

    given: Sizes | None
    kernel: LinearKernel
    known: dict[tuple[torch.Size, bool], Sizes] = field(default_factory=dict)

    def sizes(self, weight: Tensor, *, bias: bool) -> Sizes:
        if self.given is not None:
            return self.given
        shape = (weight.shape, bias)
        if shape not in self.known:
            self.known[shape] = agreeing_linear_rows(self.kernel, weight, has_bias=bias)
        return self.known[shape]


def agreeing_linear_rows(kernel: LinearKernel, like: Tensor, *, has_bias: bool) -> Sizes:
    """Try a shape, dtype and device with sums that cancel: rounding errors are left, which depend on the order of sums.

    The second half of each sum takes back the first in shuffled order. In the same order, a kernel that adds both
    halves alike would leave nothing, in any order of its own.
    """
    generator, (outputs, inputs) = torch.Generator().manual_seed(0), like.shape
    half = inputs // 2
    shuffled = torch.randperm(half, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator, dtype=like.dtype)
    weight[:, half : 2 * half] = weight[:, shuffled]
    rows = torch.randn(LARGEST, inputs, generator=generator, dtype=like.dtype)
    rows[:, half : 2 * half] = -rows[:, shuffled]
    bias = torch.randn(outputs, generator=generator, dtype=like.dtype).to(like) if has_bias else None
    laid_out = kernel.laid_out(weight.to(like))
    return agreeing(lambda some: kernel.multiplied(some, laid_out, bias), rows.to(like))


def _packed(layers: Sequence[WeightAndBias], trials: _Trials) -> _Packed:
    weight = torch.cat([weight for weight, _ in layers]).contiguous()
    biases = [bias for _, bias in layers if bias is not None]
    sizes, kernel = trials.sizes(weight, bias=bool(biases)), trials.kernel
    widths, bias = tuple(len(weight) for weight, _ in layers), torch.cat(biases) if biases else None
    return _Packed(kernel.laid_out(weight), bias, widths, sizes, kernel.multiplied)


def _reordered(weight: Tensor) -> Tensor:
    packed: Tensor = _ONEDNN._reorder_linear_weight(weight, _USUAL_ROWS)  # noqa: SLF001
    return packed


def _multiplied(rows: Tensor, weight: Tensor, bias: Bias) -> Tensor:
    product: Tensor = _ONEDNN._linear_pointwise(rows, weight, bias, "none", [], "")  # noqa: SLF001
    return product


PACKED = LinearKernel(_reordered, _multiplied)
PLAIN = LinearKernel(lambda weight: weight, linear)  # torch's own, in any dtype and on any device
