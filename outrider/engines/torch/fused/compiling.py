"""Compilation of the loops by numba, and arithmetic that they share.

A compiled loop is cached until its own file changes. After a change in this file, touch the files that use it.
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

LANES = 16  # float32 numbers in a SIMD vector
ZERO, ONE = np.float32(0.0), np.float32(1.0)
LOOSE = {"reassoc", "contract", "nnan", "nsz"}  # the compiler orders a sum, the same way for each length
I16, I32, I64, F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, WORDS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
_LOG2_E = np.float32(1.4426950408889634)
_HIGH = 0xFFFF0000
_LEAST_POWER, _MOST_POWER = np.float32(-87.0), np.float32(88.0)  # beyond them float32 under- or overflows
# Coefficients of 2**f for -0.5 <= f <= 0.5 (Taylor), within 2e-8.
_C1, _C2, _C3 = np.float32(0.6931471805599453), np.float32(0.2402265069591007), np.float32(0.05550410866482158)
_C4, _C5, _C6 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443), np.float32(0.00015403530393381608)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile at first use, and cache the result on disk for all processes where a folder is writable."""

    def made(function: Any) -> Any:
        dispatcher: Any = njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(RuntimeError):  # no writable folder
            dispatcher._cache = SparableCache(function)  # noqa: SLF001 (as its enable_caching does)
        return dispatcher

    return made


class SparableCache(FunctionCache):  # type: ignore[misc]  # numba is untyped
    """Numba's cache, except that its failures fail no call: what cannot be cached or read is compiled again."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled function; log an error of the disk."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _told_once("compiled_not_kept", error)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a compiled function; None if there is none, or it is damaged. Damaged ones are deleted."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001 (unpickling may raise anything)
            _told_once("compiled_not_read", error)
            with suppress(OSError):
                self.flush()
            return None


def _told_once(name: str, error: Exception) -> None:
    """Log the first failure of a kind in this process; each function would log its own."""
    if name not in _LOGGED:
        _LOGGED.add(name)
        event(_LOG, name, logging.WARNING, reason=f"{error!r:.200}")


@cache
def has(feature: str) -> bool:
    """Whether this CPU has a feature, by LLVM's name."""
    return bool(binding.get_host_cpu_features().get(feature))


inlined: Callable[[Any], Any] = njit(inline="always")
inner: Callable[[Any], Any] = njit(nogil=True, error_model="numpy")  # cached as part of its caller


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001 (numba's interface)
    """``a * b + c`` in float32, rounded once, by an explicit instruction that no compiler may split."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), build


@intrinsic
def wide(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """Convert a stored number to float32; bfloat16 is stored as its bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if value == types.float32:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], I32), I32(16)), F32)

    return types.float32(types.float32 if value == types.float32 else types.uint16), build


@intrinsic
def stored(typing_context: Any, value: Any, like: Any) -> Any:  # noqa: ARG001
    """Convert a float32 to the type of array ``like``; bfloat16 is rounded to nearest, ties to even."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if like.dtype == types.float32:
            return args[0]
        return builder.trunc(builder.lshr(_rounded(builder, builder.bitcast(args[0], I32)), I32(16)), I16)

    return like.dtype(types.float32, like), build


@intrinsic
def keyed(typing_context: Any, numbers: Any, row: Any, like: Any) -> Any:  # noqa: ARG001
    """Encode row ``row`` of a key's float32 ``numbers`` in the type of ``like``: one number, or two bfloat16."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = code(context, builder, signature, args)
        if like.dtype == types.float32:
            return builder.load(made.at(0, args[1], F32), align=4)
        first = made.behind(I64(0), args[1], 2)
        low, high = (_rounded(builder, builder.load(made.at(0, made.plus(first, i), I32), align=4)) for i in range(2))
        return builder.or_(builder.lshr(low, I32(16)), builder.and_(high, I32(_HIGH)))

    return like.dtype(numbers, types.int64, like), build


def _rounded(builder: Any, bits: Any) -> Any:
    """Add to a float32's bits so that the upper half is the nearest bfloat16, ties to even."""
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    return builder.add(builder.add(bits, I32(0x7FFF)), odd)


@dataclass(frozen=True, slots=True)
class Code:
    """Emitter of LLVM instructions over flat arrays."""

    builder: Any
    arrays: Sequence[Any]  # pointers to their first elements

    def at(self, array: int, offset: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.arrays[array], [offset]), kind.as_pointer())

    def plus(self, offset: Any, number: int) -> Any:
        return self.builder.add(offset, I64(number))

    def behind(self, offset: Any, step: Any, count: int) -> Any:
        """Return ``offset + step * count``."""
        return self.builder.add(offset, self.builder.mul(step, I64(count)))

    def everywhere(self, place: Any, kind: Any) -> Any:
        """Broadcast the number at a pointer to all lanes."""
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), self.builder.load(place, align=4), I32(0))
        return self.builder.shuffle_vector(first, first, ir.Constant(WORDS, [0] * LANES))

    def known(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """Return a caller of one of LLVM's intrinsics."""
        found = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)
        return lambda *values: self.builder.call(found, values)

    def fma(self) -> Callable[..., Any]:
        """Return ``a * b + c`` of vectors, rounded once."""
        return self.known(f"llvm.fma.v{LANES}f32", FLOATS, FLOATS, FLOATS, FLOATS)

    def add_pairs(self) -> Callable[..., Any]:
        """Return ``(total, a, b) -> total + a.high * b.high + a.low * b.low``, of vectors of bfloat16 pairs.

        Without the instruction, two fused multiply-adds give it, in that order.
        """
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
    """Return an emitter over those arguments that are arrays."""
    arrays = {
        i: context.make_array(kind)(context, builder, args[i]).data
        for i, kind in enumerate(signature.args)
        if isinstance(kind, types.Array)
    }
    return Code(builder, [arrays.get(i) for i in range(len(args))])


@intrinsic
def add_product(typing_context: Any, total: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    """``total + a * b`` in float32, of two numbers or two bfloat16 pairs, with the same bits as in a vector."""

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
    """Round to the nearest integer, ties to even, as a float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(F32, [F32])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.roundeven.f32"), args)

    return types.float32(types.float32), build


@intrinsic
def _times_power(typing_context: Any, value: Any, power: Any) -> Any:  # noqa: ARG001
    """Return ``value * 2**power``, both float32 and ``power`` an integer: adds to the exponent bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        exponent = builder.shl(builder.fptosi(args[1], I32), I32(23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], I32), exponent), F32)

    return types.float32(types.float32, types.float32), build


@inlined
def exponential(value: Any) -> Any:
    """Return exp of a float32, relatively within 2e-6; arguments are clamped to -87 .. 88."""
    clamped = min(max(value, _LEAST_POWER), _MOST_POWER)
    power = _nearest(clamped * _LOG2_E)
    f = fma(clamped, _LOG2_E, -power)
    p = fma(f, fma(f, fma(f, fma(f, fma(f, fma(f, _C6, _C5), _C4), _C3), _C2), _C1), ONE)
    return _times_power(p, power)


@compiled(fastmath=LOOSE)
def mean_square(row: Any) -> Any:
    """Return the mean square of a float32 row; its order of sums depends on the length only."""
    total = ZERO
    for i in range(len(row)):
        total += row[i] * row[i]
    return total / np.float32(len(row))
