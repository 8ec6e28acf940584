"""What loops are compiled with, and small pieces that they share.

A loop that was compiled is kept until its own file changes: touch the others after a change here.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic as _numbas_intrinsic

from outrider.events import event

intrinsic: Callable[[Any], Any] = _numbas_intrinsic
_LOG = logging.getLogger(__name__)
_LOGGED: set[str] = set()

LANES = 16  # computed side by side
ZERO, ONE = np.float32(0.0), np.float32(1.0)
LOOSE = {"reassoc", "contract", "nnan", "nsz"}  # sums in any order, but always the same for as many numbers
I16, I32, I64, F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, WORDS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
_LOG2_E = np.float32(1.4426950408889634)
_HIGH = 0xFFFF0000
_LEAST_POWER, _MOST_POWER = np.float32(-87.0), np.float32(88.0)
# 2**f for -0.5 <= f <= 0.5, within 2e-8 (Taylor's).
_C1, _C2, _C3 = np.float32(0.6931471805599453), np.float32(0.2402265069591007), np.float32(0.05550410866482158)
_C4, _C5, _C6 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443), np.float32(0.00015403530393381608)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compiled at first use, once for all processes if there is a place to keep that."""

    def made(function: Any) -> Any:
        dispatcher: Any = njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(RuntimeError):  # no folder that may be written to
            dispatcher._cache = SparableCache(function)  # noqa: SLF001 (as its enable_caching does)
        return dispatcher

    return made


class SparableCache(FunctionCache):  # type: ignore[misc]  # numba is untyped
    """Numba's cache of a compiled function, of which no failure fails a call: what cannot be kept is compiled again."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it, unless the disk refuses."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _told_once("compiled_not_kept", error)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was kept; None if nothing was, or it is damaged, which is forgotten."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001 (of unpickling, anything)
            _told_once("compiled_not_read", error)
            with suppress(OSError):
                self.flush()
            return None


def _told_once(name: str, error: Exception) -> None:
    """A line for the first of a kind in this process: each function would write one."""
    if name not in _LOGGED:
        _LOGGED.add(name)
        event(_LOG, name, logging.WARNING, reason=f"{error!r:.200}")


@cache
def has(feature: str) -> bool:
    """Whether this processor does, by LLVM's name for it."""
    return bool(binding.get_host_cpu_features().get(feature))


inlined: Callable[[Any], Any] = njit(inline="always")
inner: Callable[[Any], Any] = njit(nogil=True, error_model="numpy")  # kept with whoever calls it


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001 (numba's interface)
    """``a * b + c`` in float32, rounded once."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), build


@intrinsic
def wide(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """A stored number as float32; bfloat16 is stored as its bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if value == types.float32:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], I32), I32(16)), F32)

    return types.float32(types.float32 if value == types.float32 else types.uint16), build


@intrinsic
def stored(typing_context: Any, value: Any, like: Any) -> Any:  # noqa: ARG001
    """A float32 as it is stored in an array ``like`` this: bfloat16 is rounded to the nearest, or even."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if like.dtype == types.float32:
            return args[0]
        return builder.trunc(builder.lshr(_rounded(builder, builder.bitcast(args[0], I32)), I32(16)), I16)

    return like.dtype(types.float32, like), build


@intrinsic
def keyed(typing_context: Any, numbers: Any, row: Any, like: Any) -> Any:  # noqa: ARG001
    """What stands in a row of a key, given its float32 numbers, stored ``like`` this: one number, or two bfloat16."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = code(context, builder, signature, args)
        if like.dtype == types.float32:
            return builder.load(made.at(0, args[1], F32), align=4)
        first = made.behind(I64(0), args[1], 2)
        low, high = (_rounded(builder, builder.load(made.at(0, made.plus(first, i), I32), align=4)) for i in range(2))
        return builder.or_(builder.lshr(low, I32(16)), builder.and_(high, I32(_HIGH)))

    return like.dtype(numbers, types.int64, like), build


def _rounded(builder: Any, bits: Any) -> Any:
    """A float32 whose upper half is the bfloat16 that is nearest, or even."""
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    return builder.add(builder.add(bits, I32(0x7FFF)), odd)


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions over flat arrays, as they are put together."""

    builder: Any
    arrays: Sequence[Any]  # pointers to their first numbers

    def at(self, array: int, offset: Any, kind: Any) -> Any:
        """A place in an array, where such a thing stands."""
        return self.builder.bitcast(self.builder.gep(self.arrays[array], [offset]), kind.as_pointer())

    def plus(self, offset: Any, number: int) -> Any:
        """A place further on."""
        return self.builder.add(offset, I64(number))

    def behind(self, offset: Any, step: Any, count: int) -> Any:
        """A place so many steps further on."""
        return self.builder.add(offset, self.builder.mul(step, I64(count)))

    def everywhere(self, place: Any, kind: Any) -> Any:
        """A vector of the one number in a place."""
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), self.builder.load(place, align=4), I32(0))
        return self.builder.shuffle_vector(first, first, ir.Constant(WORDS, [0] * LANES))

    def known(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """One of LLVM's own functions."""
        found = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)
        return lambda *values: self.builder.call(found, values)

    def fma(self) -> Callable[..., Any]:
        """``a * b + c`` of vectors, rounded once."""
        return self.known(f"llvm.fma.v{LANES}f32", FLOATS, FLOATS, FLOATS, FLOATS)

    def add_pairs(self) -> Callable[..., Any]:
        """``total, a, b``: of vectors of pairs of bfloat16, the sum of both products added to a total in float32."""
        if has("avx512bf16"):
            return self.known("llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, FLOATS, WORDS, WORDS)
        both, builder = self.fma(), self.builder

        def halves(pairs: Any) -> list[Any]:
            upper, shift = (ir.Constant(WORDS, [number] * LANES) for number in (_HIGH, 16))
            return [builder.bitcast(bits, FLOATS) for bits in (builder.and_(pairs, upper), builder.shl(pairs, shift))]

        def added(total: Any, a: Any, b: Any) -> Any:
            for one, other in zip(halves(a), halves(b), strict=True):
                total = both(one, other, total)
            return total

        return added


def code(context: Any, builder: Any, signature: Any, args: Any) -> Code:
    """Over all arguments that are arrays."""
    arrays = {
        i: context.make_array(kind)(context, builder, args[i]).data
        for i, kind in enumerate(signature.args)
        if isinstance(kind, types.Array)
    }
    return Code(builder, [arrays.get(i) for i in range(len(args))])


@intrinsic
def add_product(typing_context: Any, total: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """``total + a * b`` in float32, of two numbers or of two pairs of bfloat16, as vectors of such have it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if a == types.float32:
            return builder.fma(args[1], args[2], args[0])
        made = code(context, builder, signature, args)
        kinds = (FLOATS, WORDS, WORDS)
        vectors = [
            builder.insert_element(ir.Constant(kind, None), value, I32(0))
            for kind, value in zip(kinds, args, strict=True)
        ]
        return builder.extract_element(made.add_pairs()(*vectors), I32(0))

    return types.float32(types.float32, a, a), build


@intrinsic
def _nearest(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """The nearest integer, as a float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(F32, [F32])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.roundeven.f32"), args)

    return types.float32(types.float32), build


@intrinsic
def _times_power(typing_context: Any, value: Any, power: Any) -> Any:  # noqa: ARG001
    """``value`` times two to the integer ``power``, both float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        exponent = builder.shl(builder.fptosi(args[1], I32), I32(23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], I32), exponent), F32)

    return types.float32(types.float32, types.float32), build


@inlined
def exponential(value: Any) -> Any:
    """Of a float32, within 2e-6 of its size; beyond -87 and 88 what it is there."""
    clamped = min(max(value, _LEAST_POWER), _MOST_POWER)
    power = _nearest(clamped * _LOG2_E)
    f = fma(clamped, _LOG2_E, -power)
    p = fma(f, fma(f, fma(f, fma(f, fma(f, fma(f, _C6, _C5), _C4), _C3), _C2), _C1), ONE)
    return _times_power(p, power)


@compiled(fastmath=LOOSE)
def mean_square(row: Any) -> Any:
    """Of a row of float32."""
    total = ZERO
    for i in range(len(row)):
        total += row[i] * row[i]
    return total / np.float32(len(row))
