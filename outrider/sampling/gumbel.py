"""Gumbel noise of random words, -log(-log u), in arithmetic that gives the same bits on every machine and device.

The last bits of libraries' logarithms differ between processors. Here every step is one integer operation, or one
operation that IEEE 754 rounds correctly (difference, sum, product, quotient); two are never fused.
``outrider.sampling.device_noise`` does the same steps with tensors. A change of either must raise the version of noise
(``outrider.versions``).

A logarithm: ``x = 2**k (1 + f)`` with ``1 + f`` in sqrt(1/2) .. sqrt(2), ``s = f / (2 + f)``, and

    -log x = -k log 2 - s (2 + c1 s**2 + c2 s**4 + c3 s**6)

which has a relative error of 3e-9 before rounding to float32 (s**2 is at most 0.0295; the c are a minimax fit of
2/3, 2/5, 2/7 and the rest). ``f`` of the uniforms is exact, as it is taken in float64: near 1 their logarithm is small,
and the largest noise depends on it. The noise is within 4e-6 of the true quantile, and within 6e-7 up to 8.
"""

import threading

import numpy as np
import numpy.typing as npt

from outrider.contracts.exchanged import FloatRow

# Bits of float32: sqrt(1/2), at which the range of 1 + f begins; the exponent field; 1.
SQRT_HALF_BITS, EXPONENT_BITS, ONE_BITS = 0x3F3504F3, -0x800000, 0x3F800000
# Of s, s**3, s**5, s**7 in -log.
COEFFICIENTS = tuple(float(np.float32(value)) for value in (-2.0, -0.66666685, -0.39988778, -0.29580053))
# Times 2**-23, as the exponent's bits are taken in place, 23 bits up.
MINUS_LOG_2 = float(np.float32(-0.6931471805599453 * 2.0**-23))
# A random word becomes 1 + n * 2**-52, from which this leaves (n + 1/2) * 2**-52: an odd multiple of 2**-53.
WORD_SHIFT, ONE_BITS_64, BELOW_ONE = 12, 0x3FF0000000000000, 1.0 - 2.0**-53

# The same as numpy scalars: converting them at each use would take a tenth of the arithmetic's time.
_SQRT_HALF, _EXPONENT, _ONE = np.int32(SQRT_HALF_BITS), np.int32(EXPONENT_BITS), np.int32(ONE_BITS)
_UNITY, _TWO, _LOG = np.float32(1.0), np.float32(2.0), np.float32(MINUS_LOG_2)
_LAST, *_BEFORE = map(np.float32, reversed(COEFFICIENTS))
_FIRST = _BEFORE[-1]

CHUNK_WORDS = 12_288  # of 30 bytes each with all scratch arrays: they fit into a core's second-level cache


def to_uniforms(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return ``[n]`` uniforms in (0, 1), odd multiples of 2**-53, in the memory of ``words``."""
    np.right_shift(words, np.uint64(WORD_SHIFT), out=words)
    np.bitwise_or(words, np.uint64(ONE_BITS_64), out=words)
    numbers = words.view(np.float64)
    return np.subtract(numbers, BELOW_ONE, out=numbers)


def gumbel_of_words(words: npt.NDArray[np.uint64], out: FloatRow) -> None:
    """Write the noise of ``words`` to ``out``, ``[n]`` each, n at most ``CHUNK_WORDS``. Overwrites ``words``."""
    uniforms, (scaled, x, s, square, exponent) = to_uniforms(words), _SCRATCH.of(len(words))
    bits = x.view(np.int32)
    np.copyto(x, uniforms, casting="same_kind")
    np.subtract(bits, _SQRT_HALF, exponent)
    np.bitwise_and(exponent, _EXPONENT, exponent)
    np.subtract(_ONE, exponent, bits)  # x is 2**-k now, of the uniform's own k
    np.copyto(scaled, x)
    np.multiply(uniforms, scaled, scaled)
    np.subtract(scaled, 1.0, scaled)
    np.copyto(x, scaled, casting="same_kind")  # x is f: exact in float64, rounded once here
    _minus_log(x, exponent, s, square, x)
    np.subtract(bits, _SQRT_HALF, exponent)
    np.bitwise_and(exponent, _EXPONENT, exponent)
    np.subtract(bits, exponent, bits)  # x is 1 + f now: its exponent is set to that of 1
    np.subtract(x, _UNITY, x)
    _minus_log(x, exponent, s, square, out)


def _minus_log(f: FloatRow, exponent: npt.NDArray[np.int32], s: FloatRow, square: FloatRow, out: FloatRow) -> None:
    """Write -log of ``(1 + f) * 2**k``; ``exponent`` is k * 2**23. Overwrites ``f``, ``s`` and ``square``."""
    np.add(f, _TWO, s)
    np.divide(f, s, s)
    np.multiply(s, s, square)
    series = f
    np.multiply(square, _LAST, series)
    for coefficient in _BEFORE:
        np.add(series, coefficient, series)
        np.multiply(series, square if coefficient is not _FIRST else s, series)
    np.copyto(square, exponent, casting="unsafe")  # exact: a multiple of 2**23
    np.multiply(square, _LOG, square)
    np.add(series, square, out)


class _Scratch(threading.local):
    """Scratch memory of a chunk, one per thread: allocating it would take as long as the arithmetic."""

    def __init__(self) -> None:
        self._scaled = np.empty(CHUNK_WORDS)
        self._floats = np.empty((3, CHUNK_WORDS), dtype=np.float32)
        self._exponent = np.empty(CHUNK_WORDS, dtype=np.int32)

    def of(self, count: int) -> tuple[npt.NDArray[np.float64], FloatRow, FloatRow, FloatRow, npt.NDArray[np.int32]]:
        x, s, square = self._floats[:, :count]
        return self._scaled[:count], x, s, square, self._exponent[:count]


_SCRATCH = _Scratch()
