"""Encoding of real numbers as unsigned codes: defines which values a field can carry.

Every field carries -inf (a removed token). Rounding is to nearest, ties to even. An int8 vector has one scale: the
smallest power of two by which its largest finite magnitude is at most 127 steps. So rounding twice changes nothing.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import MessageError, ParameterError
from outrider.contracts.exchanged import FloatField, FloatRow

CODE_BITS = {FloatField.FP32: 32, FloatField.FP16: 16, FloatField.BF16: 16, FloatField.INT8: 8}
SCALE_BITS = 32
_REMOVED = 0x80  # int8 code -128 stands for -inf; magnitudes end at 127
_MIN_EXPONENT = -149  # of a float32


@dataclass(frozen=True, slots=True)
class FloatCodes:
    """A vector as it crosses the link: ``codes`` ``[n]`` unsigned, and the scale's float32 bits for int8."""

    codes: npt.NDArray[np.unsignedinteger]
    scale_bits: int | None = None


def vector_bits(length: int, field: FloatField) -> int:
    return length * CODE_BITS[field] + header_bits(field)


def header_bits(field: FloatField) -> int:
    return SCALE_BITS if field is FloatField.INT8 else 0


def encode_floats(values: npt.ArrayLike, field: FloatField) -> FloatCodes:
    """Round a vector ``[n]`` to the field; -inf is allowed, and values below the field's range become -inf.

    A value that is NaN, +inf, or above the field's range is a ``ParameterError``.
    """
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    largest = single.max(initial=-np.inf)
    if not largest < np.inf:  # NaN included
        raise ParameterError("values", "numbers below infinity", float(largest))
    codes: npt.NDArray[np.unsignedinteger]
    scale_bits: int | None = None
    if field is FloatField.FP32:
        codes = single.view(np.uint32)
    elif field is FloatField.FP16:
        with np.errstate(over="ignore"):
            codes = single.astype(np.float16).view(np.uint16)
    elif field is FloatField.BF16:
        raw = single.view(np.uint32)
        codes = ((raw + ((raw >> 16) & 1) + np.uint32(0x7FFF)) >> 16).astype(np.uint16)
    else:
        scale = _scale(single)
        steps = np.rint(np.where(np.isneginf(single), 0.0, single.astype(np.float64)) / scale)
        codes = np.where(np.isneginf(single), _REMOVED, steps.astype(np.int64) & 0xFF).astype(np.uint8)
        scale_bits = int(np.float32(scale).view(np.uint32))
    encoded = FloatCodes(codes, scale_bits)
    if not decode_floats(encoded, field).max(initial=-np.inf) < np.inf:
        raise ParameterError("values", f"numbers in the range of {field}", float(largest))
    return encoded


def decode_floats(encoded: FloatCodes, field: FloatField) -> FloatRow:
    """Return ``[n]`` float32. Damaged codes may give NaN and infinities, which the caller must check.

    A scale that is not a positive power of two is a ``MessageError``.
    """
    codes = encoded.codes
    if field is FloatField.FP32:
        return codes.astype(np.uint32).view(np.float32)
    if field is FloatField.BF16:
        return (codes.astype(np.uint32) << 16).view(np.float32)
    if field is FloatField.FP16:
        with np.errstate(invalid="ignore"):
            return codes.astype(np.uint16).view(np.float16).astype(np.float32)
    scale = float(np.array(encoded.scale_bits, dtype=np.uint32).view(np.float32))
    if not (0.0 < scale < np.inf and np.frexp(scale)[0] == 0.5):
        raise MessageError(f"an int8 vector needs a power of two as its scale, found {scale!r}; the message is damaged")
    steps = codes.astype(np.uint8).view(np.int8).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.where(codes == _REMOVED, -np.inf, steps * scale).astype(np.float32)


def _scale(values: FloatRow) -> float:
    """Return the smallest power of two by which the largest finite magnitude is at most 127 steps."""
    largest = np.abs(values, where=np.isfinite(values), out=np.zeros_like(values)).max(initial=0.0)
    mantissa, exponent = np.frexp(np.float64(largest))
    if not largest:
        return 1.0
    # frexp: largest = mantissa * 2**exponent, so 7 bits below the exponent there are up to 128 steps.
    fits = np.rint(mantissa * 128.0) <= 127.0
    return float(2.0 ** max(int(exponent) - (7 if fits else 6), _MIN_EXPONENT))
