"""Replace a model's linear layers by products over weights in another layout.

Layers with the same input (query, key and value; gate and up) become one product.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from outrider.models.model_classes import PreTrainedModel

_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))

Bias = Tensor | None
WeightAndBias = tuple[Tensor, Bias]  # ``[outputs, inputs]``, ``[outputs]``


class Product(Protocol):
    """Replacement of one or several layers with the same input."""

    @property
    def widths(self) -> tuple[int, ...]: ...

    def __call__(self, rows: Tensor) -> Tensor:
        """``[..., inputs] -> [..., sum(widths)]``."""


def replace_linears(model: PreTrainedModel, made: Callable[[Sequence[WeightAndBias]], Product]) -> None:
    """Replace all linear layers of a model in place, each or each group by ``made`` of its weights and biases."""
    for parent in list(model.modules()):
        children = dict(parent.named_children())
        for names in _FUSED:
            if _share_input(layers := [children.get(name) for name in names]):
                whole = _Whole(made([_weight_and_bias(layer) for layer in layers]))
                for index, name in enumerate(names):
                    setattr(parent, name, _Part(whole, index))
                    del children[name]
        for name, layer in children.items():
            if isinstance(layer, nn.Linear | Conv1D):
                setattr(parent, name, _Alone(made([_weight_and_bias(layer)])))


def together(layers: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """Return one function of several layers with the same input, ``[..., inputs] -> [..., all outputs]``."""
    wholes = {id(layer.whole): layer.whole for layer in layers if isinstance(layer, _Part)}
    if len(wholes) == 1:
        return next(iter(wholes.values())).product
    if len(layers) == 1:
        return layers[0].product if isinstance(layers[0], _Alone) else layers[0]
    return lambda rows: torch.cat([layer(rows) for layer in layers], -1)


class _Alone(nn.Module):
    """A layer that shares its input with no other."""

    def __init__(self, product: Product) -> None:
        super().__init__()
        self.product = product

    def forward(self, rows: Tensor) -> Tensor:
        return self.product(rows)


class _Whole:
    """Layers with the same input: the first call computes all outputs, the others take their parts."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self._rows: Tensor | None = None
        self._left: dict[int, Tensor] = {}

    def part(self, index: int, rows: Tensor) -> Tensor:
        # The same tensor object, so the same input; a repeated part begins a new computation.
        if rows is not self._rows or index not in self._left:
            self._rows = rows
            self._left = dict(enumerate(torch.split(self.product(rows), list(self.product.widths), dim=-1)))
        found = self._left.pop(index)
        if not self._left:
            self._rows = None  # the input must not be kept alive
        return found


class _Part(nn.Module):
    def __init__(self, whole: _Whole, index: int) -> None:
        super().__init__()
        self.whole, self._index = whole, index

    def forward(self, rows: Tensor) -> Tensor:
        return self.whole.part(self._index, rows)


def _share_input(layers: Sequence[nn.Module | None]) -> bool:
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    return len(linear) == len(layers) and len({(layer.in_features, layer.bias is None) for layer in linear}) == 1


def _weight_and_bias(layer: Any) -> tuple[Tensor, Bias]:
    weight = layer.weight.T if isinstance(layer, Conv1D) else layer.weight
    return weight.detach(), None if layer.bias is None else layer.bias.detach()
