"""Linear layers over weights packed by oneDNN, in which a row's result does not depend on how many others there are.

Their weights are packed once and the unpacked ones dropped. Layers that take the same input (query, key and value; gate
and up) are computed as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from outrider.engines.torch.sizes import LARGEST, Sizes, agreeing

_ONEDNN: Any = torch.ops.mkldnn  # torch has no public name for what its own compiler calls
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_USUAL_ROWS = 32  # for which weights are laid out
_LEFT = 2.0**-7  # of what is added up in a trial, once most of it has been taken back

Bias = Tensor | None


def can_pack(model: PreTrainedModel) -> bool:
    """Whether there is anything to be gained: bfloat16 on a processor that computes in it."""
    return model.device.type == "cpu" and model.dtype is torch.bfloat16 and _ONEDNN._is_mkldnn_bf16_supported()  # noqa: SLF001


def pack_linears(model: PreTrainedModel, sizes: Sizes | None = None) -> None:
    """Replace all linear layers of a model in place.

    Args:
        model: in bfloat16, on a CPU that computes in it.
        sizes: numbers of rows to compute at once; None: those that a trial of each shape shows to agree.
    """
    trials = _Trials(sizes)
    for parent in list(model.modules()):
        children = dict(parent.named_children())
        for names in _FUSED:
            if _share_input(layers := [children.get(name) for name in names]):
                whole = _Whole(_packed([_weight_and_bias(layer) for layer in layers], trials))
                for index, name in enumerate(names):
                    setattr(parent, name, _Part(whole, index))
                    del children[name]
        for name, layer in children.items():
            if isinstance(layer, nn.Linear | Conv1D):
                setattr(parent, name, PackedLinear(_packed([_weight_and_bias(layer)], trials)))


def unpacked_weights(model: PreTrainedModel) -> list[str]:
    """Names of weights that are multiplied with in other ways, where a row's result may depend on others."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [name for name, weight in model.named_parameters() if weight.ndim > 1 and id(weight) not in tables]


@dataclass(frozen=True, slots=True)
class _Packed:
    """One product: ``[..., inputs] -> [..., sum(widths)]``."""

    weight: Tensor  # oneDNN's layout
    bias: Bias
    widths: tuple[int, ...]  # of the layers it is made of
    sizes: Sizes

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, rows.shape[-1])
        found = [self._piece(flat[p.first : p.last], p.size) for p in self.sizes.pieces(len(flat))]
        whole = found[0] if len(found) == 1 else torch.cat([flat.new_empty(0, sum(self.widths)), *found])
        return whole.view(*rows.shape[:-1], whole.shape[-1])

    def _piece(self, rows: Tensor, size: int) -> Tensor:
        count = len(rows)
        if count < size:
            rows = torch.cat([rows, rows[-1:].expand(size - count, -1)])
        return _multiplied(rows, self.weight, self.bias)[:count]


class PackedLinear(nn.Module):
    """A layer of its own."""

    def __init__(self, packed: _Packed) -> None:
        super().__init__()
        self._packed = packed

    def forward(self, rows: Tensor) -> Tensor:
        """``[..., inputs] -> [..., outputs]``."""
        return self._packed(rows)


class _Whole:
    """Layers of one input, computed once all of them are asked for it."""

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._rows: Tensor | None = None
        self._left: dict[int, Tensor] = {}

    def part(self, index: int, rows: Tensor) -> Tensor:
        if rows is not self._rows or index not in self._left:
            self._rows = rows
            self._left = dict(enumerate(torch.split(self._packed(rows), list(self._packed.widths), dim=-1)))
        found = self._left.pop(index)
        if not self._left:
            self._rows = None
        return found


class _Part(nn.Module):
    """One of them."""

    def __init__(self, whole: _Whole, index: int) -> None:
        super().__init__()
        self._whole, self._index = whole, index

    def forward(self, rows: Tensor) -> Tensor:
        return self._whole.part(self._index, rows)


@dataclass(slots=True)
class _Trials:
    """Which sizes agree, by shape: found once for each, unless they are given."""

    given: Sizes | None
    known: dict[tuple[int, int, bool], Sizes] = field(default_factory=dict)

    def sizes(self, outputs: int, inputs: int, *, bias: bool) -> Sizes:
        if self.given is not None:
            return self.given
        shape = (outputs, inputs, bias)
        if shape not in self.known:
            self.known[shape] = _tried(*shape)
        return self.known[shape]


def _tried(outputs: int, inputs: int, has_bias: bool) -> Sizes:
    """By sums that nearly cancel: what adding up in another order changes is much of what is left of them."""
    generator = torch.Generator().manual_seed(0)
    half = inputs // 2
    weight = torch.randn(outputs, inputs, generator=generator, dtype=torch.bfloat16)
    weight[:, half : 2 * half] = weight[:, :half]
    rows = torch.randn(LARGEST, inputs, generator=generator, dtype=torch.bfloat16)
    rows[:, half : 2 * half] = rows[:, :half] * (_LEFT - 1.0)
    bias = torch.randn(outputs, generator=generator, dtype=torch.bfloat16) if has_bias else None
    packed = _reordered(weight)
    return agreeing(lambda some: _multiplied(some, packed, bias), rows)


def _share_input(layers: Sequence[nn.Module | None]) -> bool:
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    return len(linear) == len(layers) and len({(layer.in_features, layer.bias is None) for layer in linear}) == 1


def _weight_and_bias(layer: Any) -> tuple[Tensor, Bias]:
    """``[outputs, inputs]``, ``[outputs]``."""
    weight = layer.weight.T if isinstance(layer, Conv1D) else layer.weight
    return weight.detach(), None if layer.bias is None else layer.bias.detach()


def _packed(layers: Sequence[tuple[Tensor, Bias]], trials: _Trials) -> _Packed:
    weight = torch.cat([weight for weight, _ in layers]).contiguous()
    biases = [bias for _, bias in layers if bias is not None]
    outputs, inputs = weight.shape
    sizes = trials.sizes(outputs, inputs, bias=bool(biases))
    widths = tuple(len(weight) for weight, _ in layers)
    return _Packed(_reordered(weight), torch.cat(biases) if biases else None, widths, sizes)


def _reordered(weight: Tensor) -> Tensor:
    packed: Tensor = _ONEDNN._reorder_linear_weight(weight, _USUAL_ROWS)  # noqa: SLF001
    return packed


def _multiplied(rows: Tensor, weight: Tensor, bias: Bias) -> Tensor:
    product: Tensor = _ONEDNN._linear_pointwise(rows, weight, bias, "none", [], "")  # noqa: SLF001
    return product
