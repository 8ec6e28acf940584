"""Write and read numbers as bits, most significant first, for every message.

Single numbers go through Python integers, arrays through numpy without a loop over values. A reader trusts nothing: it
checks that the bits exist before it allocates memory for what they claim to hold.
"""

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import MessageError, ParameterError
from outrider.contracts.exchanged import FloatField, FloatRow, IntRow
from outrider.sampling.floats import CODE_BITS, SCALE_BITS, FloatCodes, decode_floats, encode_floats, vector_bits

_COUNT_DIGIT_BITS = 3
_MAX_COUNT_BITS = 30


def id_bits(vocab_size: int) -> int:
    """Return the bits of a token id: ``ceil(log2(vocab_size))`` (TSLT section 2.2)."""
    return (vocab_size - 1).bit_length()


class BitWriter:
    """Appends numbers; ``to_bytes`` pads the last byte with zeros. A number too large is a ``MessageError``."""

    __slots__ = ("_data", "_pending", "_pending_bits")

    def __init__(self) -> None:
        self._data = bytearray()
        self._pending = 0  # the bits behind the last whole byte
        self._pending_bits = 0

    @property
    def bits(self) -> int:
        return len(self._data) * 8 + self._pending_bits

    def to_bytes(self) -> bytes:
        padding = -self._pending_bits % 8
        tail = (self._pending << padding).to_bytes((self._pending_bits + padding) // 8, "big")
        return bytes(self._data) + tail

    def uint(self, value: int, width: int) -> None:
        if value < 0 or value >> width:
            raise MessageError(f"needs a number in 0..{2**width - 1} to write in {width} bits, found {value}")
        self._pending = self._pending << width | value
        self._pending_bits += width
        whole, self._pending_bits = divmod(self._pending_bits, 8)
        if whole:
            self._data += (self._pending >> self._pending_bits).to_bytes(whole, "big")
            self._pending &= (1 << self._pending_bits) - 1

    def flag(self, *, value: bool) -> None:
        self.uint(int(value), 1)

    def count(self, value: int) -> None:
        """Write a small number: 4 bits up to 7, 8 up to 71, four more for each further factor of 8.

        Groups of three bits, lowest first, each behind a bit that is 1 if another group follows.
        """
        base = 1 << _COUNT_DIGIT_BITS
        while value >= base:
            self.uint(base | value % base, _COUNT_DIGIT_BITS + 1)
            value = value // base - 1  # less 1, so that each number has one encoding
        self.uint(value, _COUNT_DIGIT_BITS + 1)

    def uints(self, values: npt.ArrayLike, width: int) -> None:
        """Write ``[n]`` unsigned integers in ``width`` bits each, 1..64."""
        words = np.asarray(values)
        size = _word_bytes(width)
        if words.size == 0:
            return
        if width < 64 and (words.min() < 0 or words.max() >= 2**width):
            raise MessageError(
                f"needs numbers in 0..{2**width - 1} to write in {width} bits, found {words.min()}..{words.max()}"
            )
        raw = words.astype(f">u{size}").view(np.uint8)
        if width != 8 * size:
            raw = np.packbits(np.unpackbits(raw).reshape(-1, 8 * size)[:, 8 * size - width :])
        self._append(raw, words.size * width)

    def ids(self, token_ids: npt.ArrayLike, vocab_size: int) -> None:
        values = np.asarray(token_ids, dtype=np.int64)
        _check_ids(values, vocab_size)
        self.uints(values, id_bits(vocab_size))

    def floats(self, values: npt.ArrayLike, field: FloatField) -> None:
        """Write ``[n]`` numbers, already rounded to the field (``outrider.sampling.rounding``).

        If rounding changes one, the sender computed with numbers that do not cross the link: a ``MessageError``.
        """
        try:
            encoded = encode_floats(values, field)
        except ParameterError as error:
            raise MessageError(str(error)) from None
        if not np.array_equal(decode_floats(encoded, field), np.asarray(values)):
            raise MessageError(f"needs numbers that {field} holds exactly; round them before they are used")
        if encoded.scale_bits is not None:
            self.uint(encoded.scale_bits, SCALE_BITS)
        self.uints(encoded.codes, CODE_BITS[field])

    def _append(self, raw: npt.NDArray[np.uint8], bits: int) -> None:
        """Append the first ``bits`` bits of ``raw``; the bits behind them are zero."""
        shift = self._pending_bits
        if shift:
            shifted = np.append(raw >> shift, np.uint8(0))
            shifted[1:] |= np.left_shift(raw, 8 - shift, dtype=np.uint8)
            shifted[0] |= self._pending << (8 - shift)
            raw = shifted
        whole, self._pending_bits = divmod(shift + bits, 8)
        self._data += raw[:whole].tobytes()
        self._pending = int(raw[whole]) >> (8 - self._pending_bits) if self._pending_bits else 0


class BitReader:
    """Reads what a ``BitWriter`` wrote.

    Every method raises ``MessageError`` if the message ends too early or its content is invalid.
    """

    __slots__ = ("_at", "_bits", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._bits = len(data) * 8
        self._at = 0

    def need(self, bits: int) -> None:
        if bits > self._bits - self._at:
            raise MessageError(
                f"the message is truncated: needs {bits} more bits at bit {self._at}, found {self._bits - self._at}"
            )

    def finish(self) -> None:
        """Check that nothing but the padding of the last byte is left."""
        left = self._bits - self._at
        if left >= 8:
            raise MessageError(f"the message is oversized: {left // 8} bytes behind its end")
        if self.uint(left):
            raise MessageError("the message is damaged: its padding is not zero")

    def uint(self, width: int) -> int:
        self.need(width)
        start, self._at = self._at, self._at + width
        word = int.from_bytes(self._data[start >> 3 : (self._at + 7) >> 3], "big")
        return word >> (-self._at % 8) & ((1 << width) - 1)

    def flag(self) -> bool:
        return bool(self.uint(1))

    def count(self) -> int:
        """Read a number of ``BitWriter.count``; below 2**31."""
        base = 1 << _COUNT_DIGIT_BITS
        value = 0
        for shift in range(0, _MAX_COUNT_BITS, _COUNT_DIGIT_BITS):
            more, digit = divmod(self.uint(_COUNT_DIGIT_BITS + 1), base)
            value += (digit + (shift > 0)) << shift
            if not more:
                return value
        raise MessageError(f"needs a count of at most {_MAX_COUNT_BITS} bits, found a longer one")

    def uints(self, length: int, width: int) -> npt.NDArray[np.uint64]:
        """Read ``[length]`` unsigned integers in ``width`` bits each, 1..64."""
        size = _word_bytes(width)
        raw = self._take(length * width)
        if width != 8 * size:
            bits = np.zeros((length, 8 * size), dtype=np.uint8)
            bits[:, 8 * size - width :] = np.unpackbits(raw, count=length * width).reshape(length, width)
            raw = np.packbits(bits)
        return raw.view(f">u{size}").astype(np.uint64)

    def ids(self, length: int, vocab_size: int) -> IntRow:
        values = self.uints(length, id_bits(vocab_size)).astype(np.int64)
        _check_ids(values, vocab_size)
        return values

    def ascending_ids(self, length: int, vocab_size: int) -> IntRow:
        """Read token ids and check that they ascend strictly."""
        values = self.ids(length, vocab_size)
        if (values[1:] <= values[:-1]).any():
            raise MessageError("needs strictly ascending token ids, found others; the message is damaged")
        return values

    def floats(self, length: int, field: FloatField) -> FloatRow:
        """Read ``[length]`` float32; -inf only where a caller allows it, never NaN or +inf."""
        self.need(vector_bits(length, field))
        scale_bits = self.uint(SCALE_BITS) if field is FloatField.INT8 else None
        values = decode_floats(FloatCodes(self.uints(length, CODE_BITS[field]), scale_bits), field)
        if not values.max(initial=-np.inf) < np.inf:
            raise MessageError("needs numbers below infinity, found NaN or infinity; the message is damaged")
        return values

    def _take(self, bits: int) -> npt.NDArray[np.uint8]:
        """Return the next ``bits`` bits, aligned to the first byte's top; the bits behind them are arbitrary."""
        self.need(bits)
        first, shift = divmod(self._at, 8)
        self._at += bits
        size = (bits + 7) // 8
        raw = np.frombuffer(self._data, dtype=np.uint8, count=min(size + 1, len(self._data) - first), offset=first)
        if not shift:
            return raw[:size]
        shifted: npt.NDArray[np.uint8] = np.left_shift(raw[:size], shift, dtype=np.uint8)
        rest = raw[1 : size + 1] >> (8 - shift)
        shifted[: len(rest)] |= rest
        return shifted


def _word_bytes(width: int) -> int:
    assert 1 <= width <= 64
    return next(size for size in (1, 2, 4, 8) if width <= 8 * size)


def _check_ids(values: IntRow, vocab_size: int) -> None:
    if values.size and not (values.min() >= 0 and values.max() < vocab_size):
        raise MessageError(
            f"needs token ids in 0..{vocab_size - 1}, found {values.min()}..{values.max()}; "
            "do both sides use the same vocabulary?"
        )
