"""Encode a drafter's hidden states (WISV eq. 3): rounded to the message's field, and judged as rounded.

One number of a state may be thousands of times larger than the others, so int8 has a scale for each 32 numbers.
"""

import numpy as np

from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatField, FloatRow, WireFormat
from outrider.sampling.floats import vector_bits
from outrider.sampling.rounding import round_floats
from outrider.wire.bits import BitReader, BitWriter

GROUP = 32
STATE_FIELDS = (FloatField.FP32, FloatField.FP16, FloatField.INT8)
_LARGEST = {FloatField.FP16: float(np.finfo(np.float16).max)}  # clipped, as more would be infinite


def state_bits(wire: WireFormat) -> int:
    """Return the bits of one hidden state: ``d * b_h`` (WISV eq. 3), scales included."""
    whole, rest = divmod(wire.hidden_width, _group(wire))
    return whole * vector_bits(_group(wire), wire.hidden_field) + (vector_bits(rest, wire.hidden_field) if rest else 0)


def rounded_states(hidden: FloatRow, wire: WireFormat) -> FloatRow:
    """Return ``[M, d]`` as the other end reads them; a ``MessageError`` for another width or infinite numbers."""
    if hidden.ndim != 2 or hidden.shape[1] != wire.hidden_width or not np.isfinite(hidden).all():
        needed = f"finite hidden states of {wire.hidden_width} numbers"
        raise MessageError(f"needs {needed}, found shape {list(hidden.shape)}; is this the drafter the head is for?")
    most = _LARGEST.get(wire.hidden_field)
    within = hidden if most is None else hidden.clip(-most, most)
    parts = [[round_floats(part, wire.hidden_field) for part in _groups(state, wire)] for state in within]
    return np.array([np.concatenate(state) for state in parts], np.float32).reshape(hidden.shape)


def write_states(writer: BitWriter, hidden: FloatRow, wire: WireFormat) -> None:
    """Round and write ``[M, d]``."""
    for state in rounded_states(hidden, wire):
        for part in _groups(state, wire):
            writer.floats(part, wire.hidden_field)


def read_states(reader: BitReader, count: int, wire: WireFormat) -> FloatRow:
    """Read ``count`` states, ``[M, d]`` float32."""
    reader.need(count * state_bits(wire))
    sizes = [len(part) for part in _groups(np.zeros(wire.hidden_width, np.float32), wire)]
    states = [[reader.floats(size, wire.hidden_field) for size in sizes] for _ in range(count)]
    found = np.array([np.concatenate(state) for state in states], np.float32).reshape(count, wire.hidden_width)
    if not np.isfinite(found).all():
        raise MessageError("needs finite hidden states, found one that is not; the message is damaged")
    return found


def _group(wire: WireFormat) -> int:
    return GROUP if wire.hidden_field is FloatField.INT8 else max(1, wire.hidden_width)


def _groups(state: FloatRow, wire: WireFormat) -> list[FloatRow]:
    return [state[at : at + _group(wire)] for at in range(0, len(state), _group(wire))]
