"""Batch-invariant matrix products that read weights once for up to six rows.

Each sum is made in the order of its inputs, from its bias on, with one instruction per step. A row's operations are the
same whatever else is computed, so its bits are the same in any batch, without trials or filling up (``sizes``). Weights
are stored in panels of 64 outputs, input by input: a pass is one stream through memory, and up to six rows take as long
as that. Inputs are float32, or pairs of bfloat16, which AVX-512's bf16 instruction multiplies and adds in float32.
Results are float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray
from torch import Tensor, nn

from outrider.engines.torch.fused.compiling import (
    F32,
    FLOATS,
    I32,
    I64,
    LANES,
    WORDS,
    Code,
    code,
    compiled,
    has,
    intrinsic,
)
from outrider.engines.torch.replacing import Bias, WeightAndBias, replace_linears
from outrider.models.model_classes import PreTrainedModel

_VECTORS = 4  # SIMD vectors of outputs in a panel
_PANEL = _VECTORS * LANES
_MOST_ROWS = 6  # 6 * 4 sums, 4 vectors of weights and one input fit into the 32 registers of AVX-512
_LINE_BYTES = 64  # of a cache line
_PIECE_BYTES = 2**25

_Array = NDArray[Any]


def can_multiply(model: PreTrainedModel) -> bool:
    """Whether this CPU has the instructions for this model, and no faster way.

    With several threads a library shares a product better. AMX computes many bfloat16 rows in the time of one.
    """
    if model.device.type != "cpu" or torch.get_num_threads() > 1:
        return False
    if model.dtype is torch.float32:
        return has("avx512f")
    even = all(layer.in_features % 2 == 0 for layer in model.modules() if isinstance(layer, nn.Linear))
    return model.dtype is torch.bfloat16 and even and has("avx512bf16") and not has("amx-bf16")


def multiply_linears(model: PreTrainedModel) -> None:
    """Replace all linear layers of a model in place; results become float32, which the caller must accept."""
    memory = _Memory()
    replace_linears(model, lambda layers: paneled(layers, memory))


@dataclass(frozen=True, slots=True)
class PanelProduct:
    """Product of one or several layers: ``[..., inputs] -> [..., sum(widths)]``, float32."""

    weight: _Array  # ``[panels, steps, _PANEL]`` float32, or uint32 of two bfloat16
    bias: _Array  # ``[panels * _PANEL]`` float32
    widths: tuple[int, ...]  # outputs of the layers it replaces

    def __call__(self, rows: Tensor) -> Tensor:
        found = self.multiplied(stored_numbers(rows.reshape(-1, rows.shape[-1]).contiguous()))
        return torch.from_numpy(found).view(*rows.shape[:-1], found.shape[1])

    def multiplied(self, rows: _Array) -> _Array:
        """Multiply ``[N, inputs]`` float32, or bfloat16 as uint16."""
        out = np.empty((len(rows), len(self.bias)), np.float32)
        multiply(_steps(rows), self.weight, self.bias, out)
        outputs = sum(self.widths)
        return out if outputs == len(self.bias) else np.ascontiguousarray(out[:, :outputs])


def stored_numbers(numbers: Tensor) -> _Array:
    """View a tensor as an array; bfloat16 as its bits."""
    found: _Array = (numbers if numbers.dtype is torch.float32 else numbers.view(torch.uint16)).numpy()
    return found


def as_tensor(numbers: _Array) -> Tensor:
    found = torch.from_numpy(numbers)
    return found if found.dtype is torch.float32 else found.view(torch.bfloat16)


def _steps(rows: _Array) -> _Array:
    """View ``[N, inputs]`` as the operands of one step: one float32, or two bfloat16 as uint32."""
    return rows if rows.dtype == np.float32 else rows.view(np.uint32)


class _Memory:
    """Allocates arrays from large pieces, which the system maps in large pages: weights are read a tenth faster."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> _Array:
        """Return zeros aligned to a cache line: else half of all vectors would span two lines."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if len(self._left) < size + _LINE_BYTES:
            self._left = np.zeros(max(size + _LINE_BYTES, _PIECE_BYTES), np.uint8)
        first = -self._left.ctypes.data % _LINE_BYTES
        found: _Array = self._left[first : first + size].view(dtype).reshape(shape)
        self._left = self._left[first + size :]
        return found


def paneled(layers: Sequence[WeightAndBias], memory: _Memory | None = None) -> PanelProduct:
    """Combine layers with the same input into one product; outputs of the last panel are filled up with zeros."""
    memory = memory or _Memory()
    steps = _steps(stored_numbers(torch.cat([weight for weight, _ in layers]).contiguous()))
    outputs = len(steps)
    panels = -(-outputs // _PANEL)
    weight = memory.zeros((panels, steps.shape[1], _PANEL), steps.dtype)
    for panel in range(panels):
        part = steps[panel * _PANEL : (panel + 1) * _PANEL]
        weight[panel, :, : len(part)] = part.T
    bias = np.zeros(panels * _PANEL, np.float32)
    widths = tuple(len(weight) for weight, _ in layers)
    bias[:outputs] = torch.cat([_bias(own, width) for (_, own), width in zip(layers, widths, strict=True)])
    return PanelProduct(weight, bias, widths)


def _bias(bias: Bias, width: int) -> Tensor:
    return torch.zeros(width) if bias is None else bias.float()


def _summing(rows: int) -> Any:
    """Make ``sums`` for a number of rows."""

    @intrinsic
    def sums(
        typing_context: Any,  # noqa: ARG001 (numba's interface)
        inputs: Any,
        weight: Any,
        bias: Any,
        out: Any,
        place: Any,
    ) -> Any:
        """Sum ``bias + inputs * weights``, step by step, for rows ``first ..`` of the input and one panel.

        All arrays are one-dimensional and contiguous; ``place`` is ``first``, the panel, the number of steps and the
        length of a row of ``out``.
        """
        narrow = weight.dtype != types.float32

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit(code(context, builder, signature, args), rows, args, narrow=narrow)
            return context.get_dummy_value()

        return types.void(inputs, weight, bias, out, place), build

    return sums


def _emit(made: Code, rows: int, args: Any, *, narrow: bool) -> None:
    """Emit ``sums``. Totals stay in registers; explicit instructions fix the order of each sum."""
    builder, product = made.builder, _product(made, narrow=narrow)
    first, panel, steps, width = cgutils.unpack_tuple(builder, args[4])
    read, word = (WORDS, I32) if narrow else (FLOATS, F32)
    outputs = builder.mul(panel, I64(_PANEL))
    totals = [[cgutils.alloca_once(builder, FLOATS) for _ in range(_VECTORS)] for _ in range(rows)]
    for vector, offset in enumerate(_vectors(made, outputs)):
        start = builder.load(made.at(2, offset, FLOATS), align=4)
        for total in totals:
            builder.store(start, total[vector])
    begins = [builder.mul(made.plus(first, row), steps) for row in range(rows)]
    before = builder.mul(outputs, steps)
    with cgutils.for_range(builder, steps) as loop:
        here = made.behind(before, loop.index, _PANEL)
        weights = [builder.load(made.at(1, place, read), align=_LINE_BYTES) for place in _vectors(made, here)]
        for begin, total in zip(begins, totals, strict=True):
            one = made.everywhere(made.at(0, builder.add(begin, loop.index), word), read)
            for known, many in zip(total, weights, strict=True):
                builder.store(product(builder.load(known), one, many), known)
    for row, total in enumerate(totals):
        place = builder.add(builder.mul(made.plus(first, row), width), outputs)
        for known, offset in zip(total, _vectors(made, place), strict=True):
            builder.store(builder.load(known), made.at(3, offset, FLOATS), align=4)


def _product(made: Code, *, narrow: bool) -> Callable[[Any, Any, Any], Any]:
    """Return the instruction that adds one input times a vector of weights to a total, rounded as one step."""
    if narrow:
        return made.add_pairs()
    both = made.fma()
    return lambda total, one, weights: both(one, weights, total)


def _vectors(made: Code, offset: Any) -> list[Any]:
    """Return the offsets of a panel's vectors."""
    return [made.plus(offset, vector * LANES) for vector in range(_VECTORS)]


_sums: Sequence[Callable[..., None]] = [_summing(rows) for rows in range(1, _MOST_ROWS + 1)]
_one, _two, _three, _four, _five, _six = _sums


@compiled()
def multiply(inputs: Any, weight: Any, bias: Any, out: Any) -> None:
    """Multiply all rows by all weights.

    Args:
        inputs: ``[N, steps]`` float32, or uint32 of two bfloat16.
        weight: ``[panels, steps, 64]`` of the same type, aligned to a cache line.
        bias: ``[panels * 64]`` float32.
        out: ``[N, panels * 64]`` float32.
    """
    count, steps = inputs.shape
    width = out.shape[1]
    x, w, o = inputs.reshape(-1), weight.reshape(-1), out.reshape(-1)
    blocks = (count + _MOST_ROWS - 1) // _MOST_ROWS
    for panel in range(len(weight)):
        first = 0
        for block in range(blocks):
            # Rows are divided evenly: 7 are 4 + 3, not 6 + 1. No split changes a row's operations.
            rows = (count - first + blocks - block - 1) // (blocks - block)
            place = first, panel, steps, width
            if rows == 1:
                _one(x, w, bias, o, place)
            elif rows == 2:
                _two(x, w, bias, o, place)
            elif rows == 3:
                _three(x, w, bias, o, place)
            elif rows == 4:
                _four(x, w, bias, o, place)
            elif rows == 5:
                _five(x, w, bias, o, place)
            else:
                _six(x, w, bias, o, place)
            first += rows
