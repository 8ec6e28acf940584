"""Linear layers that read their weights once for up to six rows, each row's sums in the order of its inputs.

A row's result is made by the same operations whatever else is computed with it, so it is the same bits in any company;
there is nothing to try and nothing to fill up. Weights lie in panels of 64 outputs, input by input: a pass is one
stream through memory, and up to six rows take as long as that. Inputs are float32, or bfloat16 in pairs, which
AVX-512's bf16 instructions multiply and add up in float32; results are float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.engines.torch.fused.kernels import LANES, compiled, intrinsic
from outrider.engines.torch.replacing import Bias, WeightAndBias, replace_linears

_VECTORS = 4  # of outputs in a panel
_PANEL = _VECTORS * LANES
_MOST_ROWS = 6  # whose sums fit into the registers, with a panel's weights
_LINE_BYTES = 64  # of memory
_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _WORDS = ir.VectorType(_F32, LANES), ir.VectorType(_I32, LANES)

_Array = NDArray[Any]


def can_multiply(model: PreTrainedModel) -> bool:
    """Whether this processor computes this model's linear layers so, and nothing it has does it faster.

    Several threads share a product better in a library; tiles of bfloat16 (AMX) take many rows in the time of one.
    """
    if model.device.type != "cpu" or torch.get_num_threads() > 1:
        return False
    if model.dtype is torch.float32:
        return _has("avx512f")
    even = all(layer.in_features % 2 == 0 for layer in model.modules() if isinstance(layer, nn.Linear))
    return model.dtype is torch.bfloat16 and even and _has("avx512bf16") and not _has("amx-bf16")


def multiply_linears(model: PreTrainedModel) -> None:
    """Replace all linear layers of a model in place, for a caller that takes results in float32."""
    replace_linears(model, paneled)


@cache
def _has(feature: str) -> bool:
    return bool(binding.get_host_cpu_features().get(feature))


@dataclass(frozen=True, slots=True)
class Paneled:
    """One product: ``[..., inputs] -> [..., sum(widths)]``, float32."""

    weight: _Array  # [panels, steps, _PANEL] float32, or uint32 of two bfloat16
    bias: _Array  # [panels * _PANEL] float32
    widths: tuple[int, ...]  # of the layers it is made of

    def __call__(self, rows: Tensor) -> Tensor:
        """See the class."""
        found = self.multiplied(stored_numbers(rows.reshape(-1, rows.shape[-1]).contiguous()))
        return torch.from_numpy(found).view(*rows.shape[:-1], found.shape[1])

    def multiplied(self, rows: _Array) -> _Array:
        """The same of ``[N, inputs]`` float32, or bfloat16 as uint16."""
        out = np.empty((len(rows), len(self.bias)), np.float32)
        multiply(_steps(rows), self.weight, self.bias, out)
        outputs = sum(self.widths)
        return out if outputs == len(self.bias) else np.ascontiguousarray(out[:, :outputs])


def stored_numbers(numbers: Tensor) -> _Array:
    """bfloat16 as its bits."""
    found: _Array = (numbers if numbers.dtype is torch.float32 else numbers.view(torch.uint16)).numpy()
    return found


def _steps(rows: _Array) -> _Array:
    """``[N, inputs]`` as what is multiplied at once: a float32, or two bfloat16 as uint32."""
    return rows if rows.dtype == np.float32 else rows.view(np.uint32)


def paneled(layers: Sequence[WeightAndBias]) -> Paneled:
    """Layers of one input as one product."""
    steps = _steps(stored_numbers(torch.cat([weight for weight, _ in layers]).contiguous()))
    outputs = len(steps)
    panels = -(-outputs // _PANEL)
    weight = _aligned((panels, steps.shape[1], _PANEL), steps.dtype)
    for panel in range(panels):
        part = steps[panel * _PANEL : (panel + 1) * _PANEL]
        weight[panel, :, : len(part)] = part.T
    bias = np.zeros(panels * _PANEL, np.float32)
    widths = tuple(len(weight) for weight, _ in layers)
    bias[:outputs] = torch.cat([_bias(own, width) for (_, own), width in zip(layers, widths, strict=True)])
    return Paneled(weight, bias, widths)


def _bias(bias: Bias, width: int) -> Tensor:
    return torch.zeros(width) if bias is None else bias.float()


def _aligned(shape: tuple[int, ...], dtype: Any) -> _Array:
    """Zeros that begin with a line of memory: half of all vectors would lie in two."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + _LINE_BYTES, np.uint8)
    first = -raw.ctypes.data % _LINE_BYTES
    found: _Array = raw[first : first + size].view(dtype).reshape(shape)
    return found


@dataclass(frozen=True, slots=True)
class _Code:
    """Instructions, as they are put together."""

    builder: Any
    narrow: bool  # inputs and weights are pairs of bfloat16

    @property
    def vector(self) -> Any:
        """Of what is read at once."""
        return _WORDS if self.narrow else _FLOATS

    def at(self, array: Any, offset: Any, kind: Any) -> Any:
        """A place in an array."""
        return self.builder.bitcast(self.builder.gep(array, [offset]), kind.as_pointer())

    def product(self) -> Callable[[Any, Any, Any], Any]:
        """What adds one input times a vector of weights to a total."""
        name = "llvm.x86.avx512bf16.dpbf16ps.512" if self.narrow else f"llvm.fma.v{LANES}f32"
        kind = ir.FunctionType(_FLOATS, [_FLOATS, self.vector, self.vector])
        known = cgutils.get_or_insert_function(self.builder.module, kind, name)
        if self.narrow:
            return lambda total, one, weights: self.builder.call(known, [total, one, weights])
        return lambda total, one, weights: self.builder.call(known, [one, weights, total])

    def everywhere(self, place: Any) -> Any:
        """A vector of what stands in one place."""
        single = self.builder.load(place, align=4)
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), single, _I32(0))
        return self.builder.shuffle_vector(first, first, ir.Constant(_WORDS, [0] * LANES))

    def plus(self, offset: Any, number: int) -> Any:
        """A place further on."""
        return self.builder.add(offset, _I64(number))

    def vectors(self, offset: Any) -> list[Any]:
        """Where the vectors of a panel begin."""
        return [self.plus(offset, vector * LANES) for vector in range(_VECTORS)]


def _summing(rows: int) -> Any:
    """``sums`` for so many rows."""

    @intrinsic
    def sums(
        typing_context: Any,  # noqa: ARG001 (numba's interface)
        inputs: Any,
        first: Any,  # noqa: ARG001
        weight: Any,
        panel: Any,  # noqa: ARG001
        steps: Any,  # noqa: ARG001
        bias: Any,
        out: Any,
        width: Any,  # noqa: ARG001
    ) -> Any:
        """Of rows ``first ..`` and a panel: its bias, and step by step what inputs and weights come to.

        All arrays are one-dimensional and contiguous; ``width`` is of a row of ``out``.
        """
        narrow = weight.dtype != types.float32

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2, 5, 6))
            _emit(_Code(builder, narrow), rows, tuple(data), args[1], args[3], args[4], args[7])
            return context.get_dummy_value()

        i = types.int64
        return types.void(inputs, i, weight, i, i, bias, out, i), build

    return sums


def _emit(
    code: _Code, rows: int, arrays: tuple[Any, Any, Any, Any], first: Any, panel: Any, steps: Any, width: Any
) -> None:
    """As ``sums``; totals stay in registers."""
    builder, product = code.builder, code.product()
    inputs, weight, bias, out = arrays
    word = _I32 if code.narrow else _F32
    outputs = builder.mul(panel, _I64(_PANEL))
    totals = [[cgutils.alloca_once(builder, _FLOATS) for _ in range(_VECTORS)] for _ in range(rows)]
    for vector, offset in enumerate(code.vectors(outputs)):
        start = builder.load(code.at(bias, offset, _FLOATS), align=4)
        for total in totals:
            builder.store(start, total[vector])
    begins = [builder.mul(code.plus(first, row), steps) for row in range(rows)]
    before = builder.mul(outputs, steps)
    with cgutils.for_range(builder, steps) as loop:
        here = builder.add(before, builder.mul(loop.index, _I64(_PANEL)))
        places = [code.at(weight, offset, code.vector) for offset in code.vectors(here)]
        weights = [builder.load(place, align=_LINE_BYTES) for place in places]
        for begin, total in zip(begins, totals, strict=True):
            one = code.everywhere(code.at(inputs, builder.add(begin, loop.index), word))
            for known, many in zip(total, weights, strict=True):
                builder.store(product(builder.load(known), one, many), known)
    for row, total in enumerate(totals):
        place = builder.add(builder.mul(code.plus(first, row), width), outputs)
        for known, offset in zip(total, code.vectors(place), strict=True):
            builder.store(builder.load(known), code.at(out, offset, _FLOATS), align=4)


_sums: Sequence[Callable[..., None]] = [_summing(rows) for rows in range(1, _MOST_ROWS + 1)]
_one, _two, _three, _four, _five, _six = _sums


@compiled()
def multiply(inputs: Any, weight: Any, bias: Any, out: Any) -> None:
    """All rows times all weights.

    Args:
        inputs: ``[N, steps]`` float32, or uint32 of two bfloat16.
        weight: ``[panels, steps, 64]`` of the same type, beginning with a line of memory.
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
            rows = (count - first + blocks - block - 1) // (blocks - block)
            if rows == 1:
                _one(x, first, w, panel, steps, bias, o, width)
            elif rows == 2:
                _two(x, first, w, panel, steps, bias, o, width)
            elif rows == 3:
                _three(x, first, w, panel, steps, bias, o, width)
            elif rows == 4:
                _four(x, first, w, panel, steps, bias, o, width)
            elif rows == 5:
                _five(x, first, w, panel, steps, bias, o, width)
            else:
                _six(x, first, w, panel, steps, bias, o, width)
            first += rows
